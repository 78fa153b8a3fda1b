// Tile registers for CPUs with AVX512-BF16 and without AMX, so that code for matrix units is tested there, too: its
// instructions raise SIGILL, and the handler carries them out as Intel's manual (volume 2) defines them. Linked into the
// C++ tests; other programs load it with LD_PRELOAD.
#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>


namespace {

constexpr int kNumTiles = 8, kRows = 16, kWords = 16;

struct Tile {
  uint32_t words[kRows][kWords];
};

// Only tiles of full size are emulated.
struct Configuration {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];

  bool full() const {
    bool all = palette == 1 && start_row == 0;
    for (int t = 0; t < kNumTiles; ++t) all = all && row_bytes[t] == 4 * kWords && rows[t] == kRows;
    return all;
  }
};

thread_local Tile tiles[kNumTiles];
thread_local bool configured = false;
struct sigaction previous;

float low_bf16(uint32_t word) {
  word <<= 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}
float high_bf16(uint32_t word) { return low_bf16(word >> 16); }

// Not inlined: of the change of mode around it the compiler knows nothing.
[[gnu::noinline]] void add_bf16_products(Tile& sums, const Tile& left, const Tile& right) {
  for (int m = 0; m < kRows; ++m) {
    float low[kWords] = {}, high[kWords] = {}, row[kWords];
    for (int k = 0; k < kWords; ++k) {
      const uint32_t word = left.words[m][k];
      for (int n = 0; n < kWords; ++n) low[n] = std::fma(low_bf16(word), low_bf16(right.words[k][n]), low[n]);
      for (int n = 0; n < kWords; ++n) high[n] = std::fma(high_bf16(word), high_bf16(right.words[k][n]), high[n]);
    }
    std::memcpy(row, sums.words[m], sizeof row);
    for (int n = 0; n < kWords; ++n) row[n] += low[n] + high[n];
    std::memcpy(sums.words[m], row, sizeof row);
  }
}

int32_t signed_byte(uint32_t word, int i) { return static_cast<int8_t>(word >> 8 * i); }

void add_int8_products(Tile& sums, const Tile& left, const Tile& right) {
  for (int m = 0; m < kRows; ++m) {
    for (int k = 0; k < kWords; ++k) {
      for (int i = 0; i < 4; ++i) {
        const int32_t factor = signed_byte(left.words[m][k], i);
        for (int n = 0; n < kWords; ++n) sums.words[m][n] += factor * signed_byte(right.words[k][n], i);
      }
    }
  }
}

// A program's registers by their numbers in machine code.
int64_t register_value(const greg_t* registers, int number) {
  constexpr int kPlaces[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                             REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return registers[kPlaces[number]];
}

// An instruction with a three-byte VEX prefix of map 0F38: prefix, opcode, ModRM, SIB, displacement.
struct Instruction {
  enum Prefix { none, p66, pF3, pF2 };

  int64_t length = 0;  // 0: none of this form
  Prefix prefix = none;
  uint8_t opcode = 0;
  int mod = 0, reg = 0, rm = 0, operand = 0;
  char* base = nullptr;  // without the index, which is a tile's stride
  int64_t stride = 0;

  Instruction(const uint8_t* code, const greg_t* registers) {
    if (code[0] != 0xc4 || (code[1] & 0x9f) != 0x82 || code[2] & 0x84) return;
    const bool index_bit = !(code[1] & 0x40), base_bit = !(code[1] & 0x20);
    operand = ~code[2] >> 3 & 15;
    prefix = static_cast<Prefix>(code[2] & 3);
    opcode = code[3];
    mod = code[4] >> 6, reg = code[4] >> 3 & 7, rm = code[4] & 7;
    const uint8_t* next = code + 5;
    if (mod != 3) {
      int64_t address = 0;
      bool has_base = true;
      int base_register = rm;
      if (rm == 4) {
        const uint8_t sib = *next++;
        const int index = (sib >> 3 & 7) + 8 * index_bit;
        if (index != 4) stride = register_value(registers, index) << (sib >> 6);
        base_register = sib & 7;
      }
      if (mod == 0 && base_register == 5) has_base = false;
      if (has_base) address = register_value(registers, base_register + 8 * base_bit);
      if (mod == 1) address += static_cast<int8_t>(*next++);
      if (mod == 2 || !has_base) {
        int32_t displacement;
        std::memcpy(&displacement, next, sizeof displacement);
        next += sizeof displacement;
        address += displacement;
        if (rm == 5 && !has_base) address += reinterpret_cast<int64_t>(next);
      }
      base = reinterpret_cast<char*>(address);
    }
    length = next - code;
  }
};

bool configure(const Instruction& i) {
  if (i.mod == 3) {
    configured = false;
    return true;
  }
  Configuration configuration;
  std::memcpy(&configuration, i.base + i.stride, sizeof configuration);
  configured = configuration.full();
  std::memset(tiles, 0, sizeof tiles);
  return configured;
}

// False: this is no instruction on tiles, or one that the CPU would not carry out.
bool carry_out(const Instruction& i) {
  using I = Instruction;
  if (i.opcode == 0x49 && i.prefix == I::none) return configure(i);
  const bool has_address = i.mod != 3;
  if (has_address != (i.opcode == 0x4b) || (has_address && i.rm != 4)) return false;
  if (!configured || i.operand >= kNumTiles) return false;
  Tile& tile = tiles[i.reg];
  if (i.opcode == 0x49 && i.prefix == I::pF2) {
    std::memset(&tile, 0, sizeof tile);
  } else if (i.opcode == 0x4b && (i.prefix == I::pF2 || i.prefix == I::p66)) {
    for (int r = 0; r < kRows; ++r) std::memcpy(tile.words[r], i.base + r * i.stride, sizeof tile.words[r]);
  } else if (i.opcode == 0x4b && i.prefix == I::pF3) {
    for (int r = 0; r < kRows; ++r) std::memcpy(i.base + r * i.stride, tile.words[r], sizeof tile.words[r]);
  } else if (i.opcode == 0x5c && i.prefix == I::pF3) {
    // Numbers below the smallest normal one count as 0, whatever the program says.
    const unsigned mode = _mm_getcsr();
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
    add_bf16_products(tile, tiles[i.rm], tiles[i.operand]);
    _mm_setcsr(mode);
  } else if (i.opcode == 0x5e && i.prefix == I::pF2) {
    add_int8_products(tile, tiles[i.rm], tiles[i.operand]);
  } else {
    return false;
  }
  return true;
}

// Instructions on tiles that follow each other take one trap.
void handle(int signal, siginfo_t* info, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  bool any = false;
  while (true) {
    const Instruction instruction(reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers);
    if (instruction.length == 0 || !carry_out(instruction)) break;
    registers[REG_RIP] += instruction.length;
    any = true;
  }
  if (any) return;
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    sigaction(SIGILL, &previous, nullptr);
  } else {
    previous.sa_handler(signal);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) bool mlmfast_emulate_tiles() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return sigaction(SIGILL, &action, &previous) == 0;
  }();
  return installed;
}
