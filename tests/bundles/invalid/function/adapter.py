def Model(config):
    return None
