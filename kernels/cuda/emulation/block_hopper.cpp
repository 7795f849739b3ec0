// What a block's threads do with Hopper's instructions.
#include "kernels/cuda/emulation/block.h"
#include "kernels/cuda/emulation/hopper/instructions.h"
#include "kernels/cuda/emulation/sanitizers.h"
#include "runtime/core/error.h"

namespace dstrain::emulated {
namespace {

// A product of a warp, as its lanes pass it to each other.
struct WarpProduct {
  ProductLane* lane;
  const ProductShape* shape;
  Products* products;
  unsigned warp;
  const unsigned char* shared;
  size_t bytes;
};

void multiply_warp(unsigned, void* const* payloads) {
  const auto& product = *static_cast<const WarpProduct*>(payloads[0]);
  void* lanes[kWarp];
  for (unsigned l = 0; l < kWarp; ++l) {
    const auto& of_lane = *static_cast<const WarpProduct*>(payloads[l]);
    check(*of_lane.shape == *product.shape, "lanes of a warp issue different products");
    lanes[l] = of_lane.lane;
  }
  product.products->issue(product.warp, *product.shape, lanes, product.shared, product.bytes);
}

}  // namespace

// Calls f, and adds the kernel and the place to what it throws.
template <class F>
void Block::of_place(const SourceLine& place, const F& f) {
  const Unobserved unobserved;
  try {
    f();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    if (text.starts_with("emulated kernel")) throw;
    throw InternalError(fmt::format("emulated kernel {}: {} of block ({}, {}, {}) at {}:{}: {}",
                                    shape_->kernel, place.call, index_.x, index_.y, index_.z,
                                    place.file, place.line, text));
  }
}

void Block::init_barrier(uint64_t* word, int arrivals, const SourceLine& place) {
  of_place(place, [&] { shared_barriers_.init(word, arrivals); });
}

void Block::arrive(uint64_t* word, uint32_t bytes, const SourceLine& place) {
  if (fault_ == Fault::no_arrival && bytes == 0) return;
  if (fault_ == Fault::fewer_bytes && bytes > 0) bytes -= 16;
  if (fault_ == Fault::more_bytes && bytes > 0) bytes += 16;
  of_place(place, [&] {
    release(shared_barriers_.order_of(word));
    if (shared_barriers_.arrive(word, bytes)) wake_waiting(word);
  });
}

void Block::wait_phase(uint64_t* word, int parity, const SourceLine& place) {
  const auto passed = [&] {
    bool done = false;
    of_place(place, [&] {
      const bool bytes = shared_barriers_.has_bytes(word);
      done = shared_barriers_.passed(word, parity) ||
             fault_ == (bytes ? Fault::no_wait_for_copies : Fault::no_wait_for_readers);
    });
    return done;
  };
  while (!passed()) {
    Worker& self = *running_;
    self.word = word;
    phase_waiters_.push(&self);
    wait(place);
    self.word = nullptr;
  }
  of_place(place, [&] { acquire(shared_barriers_.order_of(word)); });
}

void Block::wake_waiting(const uint64_t* word) {
  for (unsigned count = phase_waiters_.size(); count > 0; --count) {
    Worker* const worker = phase_waiters_.pop();
    if (worker->word == word)
      make_ready(worker);
    else
      phase_waiters_.push(worker);
  }
}

void Block::copy_box(void* to, const TensorMap& from, const BoxCopies::Coordinates& at,
                     uint64_t* word, const SourceLine& place) {
  of_place(place, [&] {
    const auto offset = static_cast<unsigned char*>(to) - shared_.get();
    check(offset >= 0 && static_cast<size_t>(offset) < shared_bytes_,
          "a copy to an address outside of the block's shared memory");
    copies_.start(shared_.get(), shared_bytes_, static_cast<uint32_t>(offset), from, at, word);
  });
}

// Carries out one of the started copies. Returns false if there is none.
bool Block::deliver_copy() {
  if (copies_.empty()) return false;
  of_place({"a copy", shape_->kernel, 0}, [&] {
    const BoxCopies::Done done =
        copies_.finish(shared_.get(), draw(), fault_ == Fault::wrong_swizzle);
    release(shared_barriers_.order_of(done.word));
    if (shared_barriers_.complete(done.word, done.bytes)) wake_waiting(done.word);
  });
  return true;
}

void Block::begin_products() {
  products_.begin(running_->thread);
}

void Block::commit_products() {
  products_.commit(running_->thread);
}

void Block::wait_products(unsigned pending, const SourceLine& place) {
  if (fault_ == Fault::no_wait_for_products) return;
  of_place(place, [&] { products_.wait(running_->thread, pending, shared_.get(), shared_bytes_); });
}

void Block::multiply(const ProductShape& shape, ProductLane& lane, const SourceLine& place) {
  WarpProduct product{&lane,         &shape,       &products_, running_->thread / kWarp,
                      shared_.get(), shared_bytes_};
  try {
    collective(~0u, &product, multiply_warp, false, place);
  } catch (const InternalError&) {
    of_place(place, [] { throw; });
  }
}

void Block::take_sums(float* sums, int tiles, const SourceLine& place) {
  of_place(place, [&] {
    check(products_.take(running_->thread, sums, tiles), "sums of no product that was issued");
  });
}

void Block::end_products() {
  of_place({"the end", shape_->kernel, 0}, [&] { products_.check_ended(); });
}

// --- hopper/instructions.h ----------------------------------------------------------------------

void init_shared_barrier(uint64_t* word, int arrivals, const SourceLine& place) {
  block_of_thread().init_barrier(word, arrivals, place);
}
void arrive_at_barrier(uint64_t* word, uint32_t bytes, const SourceLine& place) {
  block_of_thread().arrive(word, bytes, place);
}
void wait_for_phase(uint64_t* word, int parity, const SourceLine& place) {
  block_of_thread().wait_phase(word, parity, place);
}
void start_copy(void* to, const TensorMap& from, const std::array<int, kMostDimensions>& at,
                uint64_t* word, const SourceLine& place) {
  block_of_thread().copy_box(to, from, at, word, place);
}
void begin_group() {
  block_of_thread().begin_products();
}
void commit_group() {
  block_of_thread().commit_products();
}
void wait_for_groups(unsigned pending, const SourceLine& place) {
  block_of_thread().wait_products(pending, place);
}
void issue_product_of_warp(const ProductShape& shape, ProductLane& lane, const SourceLine& place) {
  block_of_thread().multiply(shape, lane, place);
}
void take_sums_of_lane(float* sums, int tiles, const SourceLine& place) {
  block_of_thread().take_sums(sums, tiles, place);
}
unsigned char* panel_memory() {
  return block_of_thread().shared();
}
uint32_t offset_in_shared(const void* at) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(at) - block_of_thread().shared());
}

}  // namespace dstrain::emulated
