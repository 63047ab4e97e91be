"""Text in, text out: tokenizers, chat templates, incremental detokenizing, stop strings. Never imports torch."""
