from .base import Base


class Model(Base):
    model_capabilities = {"supports_prefix_caching": True}
