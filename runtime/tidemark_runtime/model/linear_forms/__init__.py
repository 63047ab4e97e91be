"""The forms a weight matrix can have while it computes. One small class each; `model.linear` chooses."""
