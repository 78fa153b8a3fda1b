#include "mlmfast/isa.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#ifdef MLMFAST_X86_64
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>

// Tests may bring it, for CPUs without tile registers: true once their instructions are carried out all the same.
extern "C" __attribute__((weak, visibility("default"))) bool mlmfast_emulate_tiles();
#endif
#endif

namespace mlmfast {
namespace {

#ifdef MLMFAST_X86_64

// Register state the operating system must save before a feature may be used (XCR0 bits).
constexpr uint64_t kAvxState = 0x6;
constexpr uint64_t kAvx512State = kAvxState | 0xe0;
constexpr uint64_t kAmxState = 0x60000;

enum Register { eax, ebx, ecx, edx };

struct Feature {
  const char* name;
  unsigned leaf, subleaf;
  Register where;
  int bit;
  uint64_t state;
};

constexpr Feature kFeatures[] = {
    {"fma", 1, 0, ecx, 12, kAvxState},
    {"f16c", 1, 0, ecx, 29, kAvxState},
    {"avx2", 7, 0, ebx, 5, kAvxState},
    {"avx_vnni", 7, 1, eax, 4, kAvxState},
    {"avx512f", 7, 0, ebx, 16, kAvx512State},
    {"avx512dq", 7, 0, ebx, 17, kAvx512State},
    {"avx512bw", 7, 0, ebx, 30, kAvx512State},
    {"avx512vl", 7, 0, ebx, 31, kAvx512State},
    {"avx512_vnni", 7, 0, ecx, 11, kAvx512State},
    {"avx512_bf16", 7, 1, eax, 5, kAvx512State},
    {"avx512_fp16", 7, 0, edx, 23, kAvx512State},
    {"amx_tile", 7, 0, edx, 24, kAmxState},
    {"amx_bf16", 7, 0, edx, 22, kAmxState},
    {"amx_int8", 7, 0, edx, 25, kAmxState},
};

uint64_t enabled_state() {
  unsigned r[4];
  constexpr unsigned kOsxsave = 1u << 27;
  if (!__get_cpuid(1, &r[eax], &r[ebx], &r[ecx], &r[edx]) || !(r[ecx] & kOsxsave)) return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

#endif

bool has_all(const std::vector<std::string>& features, std::initializer_list<const char*> names) {
  return std::all_of(names.begin(), names.end(), [&](const char* name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  });
}

bool has_tiles(const std::vector<std::string>& features) {
#if defined(MLMFAST_X86_64) && defined(__linux__)
  if (!has_all(features, {"amx_tile", "amx_bf16", "amx_int8"})) {
    return mlmfast_emulate_tiles != nullptr && mlmfast_emulate_tiles();
  }
  // Linux saves the tile registers only for a process that asks (Documentation/arch/x86/xstate.rst).
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return permitted;
#else
  return false;
#endif
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
    case Isa::amx: return "amx";
    default: return "generic";
  }
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
#ifdef MLMFAST_X86_64
  const uint64_t state = enabled_state();
  for (const Feature& feature : kFeatures) {
    unsigned r[4];
    if (__get_cpuid_count(feature.leaf, feature.subleaf, &r[eax], &r[ebx], &r[ecx], &r[edx]) &&
        (r[feature.where] >> feature.bit & 1) && (state & feature.state) == feature.state) {
      names.emplace_back(feature.name);
    }
  }
#endif
  return names;
}

std::vector<Isa> available_isas() {
  struct Step {
    Isa isa;
    std::initializer_list<const char*> needs;
  };
  static const Step kSteps[] = {
      {Isa::avx2, {"avx2", "fma"}},
      {Isa::avx512, {"avx512f", "avx512bw", "avx512dq", "avx512vl"}},
      {Isa::avx512_bf16, {"avx512_bf16"}},
      {Isa::amx, {}},
  };
  std::vector<Isa> isas = {Isa::generic};
  const std::vector<std::string> features = cpu_features();
  for (const Step& step : kSteps) {
    if (!has_all(features, step.needs) || (step.isa == Isa::amx && !has_tiles(features))) break;
    isas.push_back(step.isa);
  }
  return isas;
}

Isa isa_from_name(const std::string& name) {
  const std::vector<Isa> isas = available_isas();
  if (name.empty()) return isas.back();
  std::string possible;
  for (Isa isa : isas) {
    if (name == isa_name(isa)) return isa;
    possible += (possible.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  throw std::invalid_argument("instruction set '" + name + "' is unknown or not available on this CPU; use one of: " +
                              possible);
}

Isa default_isa() {
  const char* name = std::getenv("MLMFAST_ISA");
  if (name == nullptr) return available_isas().back();
  try {
    return isa_from_name(name);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string("MLMFAST_ISA: ") + error.what());
  }
}

}  // namespace mlmfast
