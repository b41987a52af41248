class Model:
    name = 'café'
