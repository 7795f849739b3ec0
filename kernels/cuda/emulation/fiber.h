// A fiber: a stack of its own on which calls run until they suspend. Stands on Boost.Context.
#pragma once

#include <boost/context/fiber.hpp>
#include <functional>

#include "kernels/cuda/emulation/sanitizers.h"

namespace dstrain::emulated {

class Fiber {
 public:
  // `work` is called over and over, once per call's worth of resume() and suspend().
  explicit Fiber(std::function<void()> work);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();  // unwinds what is suspended

  // Runs the work until it suspends or ends; returns whether it has ended. What it throws is thrown here.
  bool resume();
  // Called on the fiber: back to resume().
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
