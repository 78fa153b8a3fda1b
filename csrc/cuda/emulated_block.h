// CUDA's model of execution in ordinary C++, for tests: the threads of a block are fibers of one thread, run one after
// another up to each barrier. What a GPU would only do wrong now and then, this does wrong always: shared memory
// starts as NaN and has a checkable end, asynchronous copies arrive as late as allowed, and threads and blocks run
// forwards or, to show missing barriers and races, backwards.
#pragma once

#include <ucontext.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace mlmfast::cuda::emulation {

struct Copy {
  void* target;
  const void* source;
  int size;
};

// What the threads of a warp hold of one matrix instruction.
struct MatrixProduct {
  int num_threads = 0;  // that have come
  float* sums[32];
  uint32_t a[32][4], b[32][2];
};

struct Warp {
  std::deque<MatrixProduct> products;  // that not all threads have come to
  int64_t num_finished = 0;
};

// Runs the kernel of one block after another, never to return.
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  std::deque<std::vector<Copy>> copies{1};  // groups; the last one is open
  int64_t num_products = 0;
  bool done = true;
  void* sanitizer_fiber = nullptr;
};

constexpr size_t kStackSize = 1 << 16;

struct Block {
  std::deque<Fiber> fibers;
  std::vector<Warp> warps;
  unsigned char* memory = nullptr;
  int running = 0;
  dim3 index, grid;
  std::function<void()> kernel;
  ucontext_t scheduler;
  void* scheduler_fiber = nullptr;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_size = 0;
};

inline Block block;
inline bool backwards = false;

// The sanitizers have to be told of every change of stacks.
inline void announce_switch(void** fake_stack, void* fiber, const void* stack, size_t stack_size) {
  (void)fake_stack, (void)fiber, (void)stack, (void)stack_size;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake_stack, stack, stack_size);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(fiber, 0);
#endif
}
inline void announce_arrival(void* fake_stack, const void** left_stack, size_t* left_stack_size) {
  (void)fake_stack, (void)left_stack, (void)left_stack_size;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, left_stack, left_stack_size);
#endif
}

inline void leave_fiber() {
  Fiber& fiber = block.fibers[block.running];
  void* fake_stack = nullptr;
  announce_switch(&fake_stack, block.scheduler_fiber, block.scheduler_stack, block.scheduler_stack_size);
  swapcontext(&fiber.context, &block.scheduler);
  announce_arrival(fake_stack, &block.scheduler_stack, &block.scheduler_stack_size);
}

inline void enter_fiber(int index) {
  block.running = index;
  Fiber& fiber = block.fibers[index];
  void* fake_stack = nullptr;
  announce_switch(&fake_stack, fiber.sanitizer_fiber, fiber.stack.get(), kStackSize);
  swapcontext(&block.scheduler, &fiber.context);
  announce_arrival(fake_stack, nullptr, nullptr);
}

inline void fiber_main() {
  announce_arrival(nullptr, &block.scheduler_stack, &block.scheduler_stack_size);
  for (;;) {
    block.kernel();
    block.fibers[block.running].done = true;
    leave_fiber();
  }
}

inline void create_fiber() {
  Fiber& fiber = block.fibers.emplace_back();
  fiber.stack = std::make_unique<char[]>(kStackSize);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackSize;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
#ifdef __SANITIZE_THREAD__
  block.scheduler_fiber = __tsan_get_current_fiber();
  fiber.sanitizer_fiber = __tsan_create_fiber(0);
#endif
}

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "emulation: %s\n", what);
  std::abort();
}

inline MatrixProduct& next_product() {
  Warp& warp = block.warps[block.running / 32];
  const int64_t index = block.fibers[block.running].num_products++ - warp.num_finished;
  if (index == static_cast<int64_t>(warp.products.size())) warp.products.emplace_back();
  ++warp.products[index].num_threads;
  return warp.products[index];
}

inline void add_product(const MatrixProduct& product) {
  const auto value = [](uint32_t word, int half) { return std::bit_cast<float>(half ? word & 0xffff0000 : word << 16); };
  float a[16][16], b[16][8];
  for (int k = 0; k < 16; ++k) {
    for (int row = 0; row < 16; ++row) {
      a[row][k] = value(product.a[row % 8 * 4 + k % 8 / 2][k / 8 * 2 + row / 8], k % 2);
    }
    for (int column = 0; column < 8; ++column) {
      b[k][column] = value(product.b[column * 4 + k % 8 / 2][k / 8], k % 2);
    }
  }
  for (int row = 0; row < 16; ++row) {
    float sums[8] = {};
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[column] += a[row][k] * b[k][column];
    }
    for (int column = 0; column < 8; ++column) {
      product.sums[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2] += sums[column];
    }
  }
}

inline void finish_products() {
  Warp& warp = block.warps[block.running / 32];
  while (!warp.products.empty() && warp.products.front().num_threads == 32) {
    add_product(warp.products.front());
    warp.products.pop_front();
    ++warp.num_finished;
  }
}

// memory_bytes: a multiple of 128.
inline void run_block(int num_threads, int memory_bytes) {
  // Exactly as large as asked for, so that the address sanitizer sees what goes beyond.
  block.memory = static_cast<unsigned char*>(std::aligned_alloc(128, memory_bytes));
  std::memset(block.memory, 0xff, memory_bytes);
  while (static_cast<int>(block.fibers.size()) < num_threads) create_fiber();
  block.warps.assign(num_threads / 32, {});
  for (int i = 0; i < num_threads; ++i) {
    block.fibers[i].done = false;
    block.fibers[i].num_products = 0;
  }
  for (int num_done = 0; num_done < num_threads;) {
    num_done = 0;
    for (int i = 0; i < num_threads; ++i) {
      const int index = backwards ? num_threads - 1 - i : i;
      enter_fiber(index);
      num_done += block.fibers[index].done;
    }
    if (num_done != 0 && num_done != num_threads) fail("only some threads of a block reached a barrier");
    for (const Warp& warp : block.warps) {
      if (!warp.products.empty()) fail("only some threads of a warp reached a matrix product");
    }
  }
  for (int i = 0; i < num_threads; ++i) {
    for (const std::vector<Copy>& group : block.fibers[i].copies) {
      if (!group.empty()) fail("a thread ended before its copies");
    }
    block.fibers[i].copies.assign(1, {});
  }
  std::free(block.memory);
}

struct ThreadIndex {
  struct {
    operator int() const { return block.running; }
  } x;
};
struct BlockIndex {
  struct {
    operator unsigned() const { return block.index.x; }
  } x;
  struct {
    operator unsigned() const { return block.index.y; }
  } y;
};

}  // namespace mlmfast::cuda::emulation
