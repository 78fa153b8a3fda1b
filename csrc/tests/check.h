// The least a test program needs: checks that print where and what, and the exit status.
#pragma once

#include <cstdio>
#include <string>

namespace mlmfast::testing {

inline int num_failures = 0;

// At most 20 failures are printed; all are counted.
inline void check(bool ok, const std::string& what) {
  if (ok) return;
  if (++num_failures <= 20) std::fprintf(stderr, "failed: %s\n", what.c_str());
}

template <class Exception, class Call>
void check_throws(Call&& call, const std::string& what) {
  try {
    call();
  } catch (const Exception&) {
    return;
  }
  check(false, what + " threw nothing");
}

inline int report(const char* name) {
  std::printf("%s: %d failures\n", name, num_failures);
  return num_failures == 0 ? 0 : 1;
}

}  // namespace mlmfast::testing
