class Model:
    def prefill_forward(self, tokens:
        return tokens
