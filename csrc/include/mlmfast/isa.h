// Which instruction sets this build and this CPU have, and which one kernels use.
#pragma once

#include <string>
#include <vector>

namespace mlmfast {

// Each has all that stands before it.
enum class Isa { generic, avx2, avx512, avx512_bf16, amx };

const char* isa_name(Isa isa);

// CPU features the operating system has enabled, by their usual names ("avx2", "amx_bf16", ...).
std::vector<std::string> cpu_features();

// Instruction sets that this build has kernels for and this CPU runs, slowest first.
std::vector<Isa> available_isas();

// The instruction set named, or the fastest for an empty name.
// Throws std::invalid_argument, listing what is possible, for a name unknown or not available.
Isa isa_from_name(const std::string& name);

// The one MLMFAST_ISA names, or the fastest; throws as isa_from_name does.
Isa default_isa();

}  // namespace mlmfast
