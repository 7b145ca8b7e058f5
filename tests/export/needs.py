import importlib.util

import pytest

NEEDS = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]

needs_onnx = pytest.mark.skipif(bool(NEEDS), reason=f"{' and '.join(NEEDS)} not installed: pip install 'vfl-node[onnx]'")
