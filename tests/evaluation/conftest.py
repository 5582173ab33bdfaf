from ..data.conftest import private_cache  # noqa: F401 (a fixture)
