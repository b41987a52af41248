def rope(:
    pass
