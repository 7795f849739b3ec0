// Times two functions in turn, so that what else a machine does counts for both.
#pragma once

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace dstrain {

// Returns the time that f takes. One thread's is its processor time, so that other programs count less.
inline double seconds(const std::function<void()>& f, int threads) {
  const auto now = [&] {
    timespec t{};
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  f();
  return now() - start;
}

inline double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// Returns the median, the lowest and the highest.
inline std::string spread(const std::vector<double>& x) {
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", median(x), *least, *most);
}

struct Timing {
  double kernel;               // median seconds
  std::vector<double> ratios;  // the other's time / the kernel's
};

// Runs the two alternately, swapping which one goes first. The first round does not count.
inline Timing compare(const std::function<void()>& kernel, const std::function<void()>& other,
                      int rounds, int threads) {
  std::vector<double> times, ratios;
  for (int i = 0; i < rounds + 1; ++i) {
    double k, o;
    if (i % 2 == 0)
      k = seconds(kernel, threads), o = seconds(other, threads);
    else
      o = seconds(other, threads), k = seconds(kernel, threads);
    if (i == 0) continue;
    times.push_back(k);
    ratios.push_back(o / k);
  }
  return {median(times), ratios};
}

}  // namespace dstrain
