#include "kernels/cuda/emulation/fiber.h"

#include <boost/context/protected_fixedsize_stack.hpp>
#include <exception>
#include <utility>

namespace dstrain::emulated {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

// Memory that is returned may be mapped again for something else, which must not inherit what the address sanitizer
// knows of the frames that were there.
class Stacks {
 public:
  boost::context::stack_context allocate() { return stacks_.allocate(); }
  void deallocate(boost::context::stack_context& stack) {
    forget_frames(static_cast<char*>(stack.sp) - stack.size, stack.size);
    stacks_.deallocate(stack);
  }

 private:
  boost::context::protected_fixedsize_stack stacks_{kStackBytes};
};

// Reports the switch to this stack to the sanitizers, also when a suspended call is unwound.
class Arrival {
 public:
  Arrival(SanitizedStack& to, SanitizedStack* from) : to_(to), from_(from) {}
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;
  ~Arrival() { arrive(to_, from_); }

 private:
  SanitizedStack& to_;
  SanitizedStack* from_;
};

}  // namespace

Fiber::Fiber(std::function<void()> work) : work_(std::move(work)) {
  Stacks allocator;
  const boost::context::stack_context stack = allocator.allocate();
  stack_.size = stack.size;
  stack_.bottom = static_cast<char*>(stack.sp) - stack.size;
  if (__tsan_create_fiber) stack_.thread = __tsan_create_fiber(0);
  self_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack), allocator,
      [this](boost::context::fiber&& caller) { return loop(std::move(caller)); });
}

Fiber::~Fiber() {
  if (__tsan_get_current_fiber) caller_stack_.thread = __tsan_get_current_fiber();
  if (self_) {
    leave(caller_stack_, stack_);
    self_ = boost::context::fiber();
    arrive(caller_stack_, nullptr);
  }
  if (stack_.thread) __tsan_destroy_fiber(stack_.thread);
}

boost::context::fiber Fiber::loop(boost::context::fiber caller) {
  caller_ = std::move(caller);
  arrive(stack_, &caller_stack_);
  try {
    while (true) {
      try {
        work_();
      } catch (const boost::context::detail::forced_unwind&) {
        throw;
      } catch (...) {
        failure_ = std::current_exception();
        release(this);
      }
      ended_ = true;
      suspend();
    }
  } catch (const boost::context::detail::forced_unwind&) {
    // To the sanitizers, what follows happens in the caller.
    release(this);
    leave(stack_, caller_stack_);
    acquire(this);
    throw;
  }
}

bool Fiber::resume() {
  ended_ = false;
  if (__tsan_get_current_fiber) caller_stack_.thread = __tsan_get_current_fiber();
  leave(caller_stack_, stack_);
  self_ = std::move(self_).resume();
  arrive(caller_stack_, nullptr);
  if (failure_) {
    acquire(this);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  return ended_;
}

void Fiber::suspend() {
  leave(stack_, caller_stack_);
  const Arrival arrival(stack_, &caller_stack_);
  caller_ = std::move(caller_).resume();
}

}  // namespace dstrain::emulated
