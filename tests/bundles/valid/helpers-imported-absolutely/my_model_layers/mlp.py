import my_model_rope


class MLP:
    pass
