// The CUDA head and its test, compiled as ordinary C++ and run in the emulation.
#include "cuda/api.cu"
#include "cuda/head.cu"
#include "cuda/head_api.cu"
#include "cuda/tests/head_test.cu"
