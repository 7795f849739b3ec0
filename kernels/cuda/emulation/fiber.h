// A fiber: calls run on its own stack and can suspend themselves. Uses Boost.Context.
#pragma once

#include <boost/context/fiber.hpp>
#include <functional>

#include "kernels/cuda/emulation/sanitizers.h"

namespace dstrain::emulated {

class Fiber {
 public:
  // Each time a call of `work` has ended, the next resume() calls it again.
  explicit Fiber(std::function<void()> work);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();  // unwinds a suspended call

  // Runs the work until it suspends or ends. Returns whether it has ended. Throws what the work throws.
  bool resume();
  // Suspends the running work; resume() returns. Must be called on the fiber.
  void suspend();

 private:
  boost::context::fiber loop(boost::context::fiber caller);

  std::function<void()> work_;
  boost::context::fiber self_, caller_;
  SanitizedStack stack_, caller_stack_;
  std::exception_ptr failure_;
  bool ended_ = false;
};

}  // namespace dstrain::emulated
