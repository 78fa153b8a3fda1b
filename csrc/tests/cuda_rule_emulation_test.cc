// The CUDA kernels of the scoring rules and their test, compiled as ordinary C++ and run in the emulation: what a GPU
// runs but for the hardware.
#include "cuda/api.cu"
#include "cuda/rule_api.cu"
#include "cuda/rule_backward.cu"
#include "cuda/rule_forward.cu"
#include "cuda/tests/scoring_rules_test.cu"
