def rope():
    pass
