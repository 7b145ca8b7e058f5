PY ?= python3
VENV := .venv
BIN := $(VENV)/bin

proto: $(BIN)/python
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=vfl_node/transport/generated --pyi_out=vfl_node/transport/generated proto/vfl/v1/*.proto
