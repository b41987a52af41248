from tt_library import Base


class Model(Base):
    pass
