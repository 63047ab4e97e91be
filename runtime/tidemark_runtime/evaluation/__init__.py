"""What a configuration of KV memory costs in accuracy, measured beside the unquantized model.

`regression` compares configurations, `sensitivity` finds the layers and heads that cost most. Both keep every
measurement in a journal as it comes (`journal`), so that a run that was stopped goes on where it was.
"""
