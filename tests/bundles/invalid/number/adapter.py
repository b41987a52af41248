Model = 7
