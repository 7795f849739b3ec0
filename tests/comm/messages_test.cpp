// Messages between two ranks; run by mpirun with 2, 3 and 4 ranks on every transport.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

std::unique_ptr<Communicator> world_of_messages() {
  CommOptions options;
  options.deadline_seconds = 60;
  return make_communicator(options);
}

// The two communicators of this rank and a neighbour, one for each direction; those of this rank alone where
// there is no neighbour.
struct Link {
  std::unique_ptr<Communicator> forward, backward;
};

// Collective. Returns the links to the rank before this one and to the one after it.
std::pair<Link, Link> make_links(Communicator& world) {
  Link before, after;
  const int me = world.rank();
  for (int first = 0; first + 1 < world.size(); ++first) {
    std::vector<int> list{me};
    if (me == first || me == first + 1) list = {first, first + 1};
    Link link{world.split(list), world.split(list)};
    if (me == first) after = std::move(link);
    if (me == first + 1) before = std::move(link);
  }
  return {std::move(before), std::move(after)};
}

struct Payload {
  int64_t elements;
  DType dtype;
};

// What travels for a micro-batch.
Payload payload_of(int micro) {
  constexpr int64_t sizes[] = {0, 1, 12345, 3, 150001, 77};
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::u8};
  return {sizes[micro % 6], dtypes[micro % 3]};
}

constexpr int64_t kSlotBytes = 150001 * 4 + 64;

std::byte byte_at(int micro, int sender, bool backward, int64_t i) {
  return static_cast<std::byte>((i * 7 + i / 251 + micro * 31 + sender * 5 + (backward ? 3 : 0)) &
                                255);
}

// Sends and receives of one stage of a pipeline, each in a place of its own. Odd micro-batches lie outside
// the memory of the communicator.
class Stage {
 public:
  Stage(Communicator& world, int micros)
      : world_(world),
        inside_(world.allocate(4 * micros * kSlotBytes, "the test")),
        outside_(static_cast<size_t>(4 * micros * kSlotBytes)),
        links_(make_links(world)) {}

  void forward(int micro) {
    if (world_.rank() > 0) receive(*links_.first.forward, micro, world_.rank() - 1, false);
    if (world_.rank() + 1 < world_.size()) send(*links_.second.forward, micro, false);
  }
  void backward(int micro) {
    if (world_.rank() + 1 < world_.size())
      receive(*links_.second.backward, micro, world_.rank() + 1, true);
    if (world_.rank() > 0) send(*links_.first.backward, micro, true);
  }
  // Serves all links until everything sent has been taken.
  void complete_sends() {
    for (size_t i = 0; i < sends_.size(); ++i) wait(i);
  }

 private:
  Tensor place(int micro, bool receives, bool backward) {
    const int64_t slot = (micro * 2 + (receives ? 1 : 0)) * 2 + (backward ? 1 : 0);
    std::byte* memory = micro % 2 == 0 ? inside_.data() : outside_.data();
    const Payload p = payload_of(micro);
    return {memory + slot * kSlotBytes + size_of(p.dtype), {p.elements}, p.dtype};
  }
  void send(Communicator& link, int micro, bool backward) {
    const Tensor t = place(micro, false, backward);
    for (int64_t i = 0; i < t.bytes(); ++i)
      t.as<std::byte>()[i] = byte_at(micro, world_.rank(), backward, i);
    sends_.push_back(link.send(t));
  }
  void receive(Communicator& link, int micro, int sender, bool backward) {
    const Tensor t = place(micro, true, backward);
    Work work = link.recv(t);
    WaitState state;
    while (!work.wait_step(state, std::chrono::microseconds(100)))
      for (Work& other : sends_) other.poll();
    int64_t wrong = 0;
    for (int64_t i = 0; i < t.bytes(); ++i)
      wrong += t.as<std::byte>()[i] != byte_at(micro, sender, backward, i);
    CAPTURE(micro, backward, t.elements());
    REQUIRE(wrong == 0);
  }
  void wait(size_t i) {
    WaitState state;
    while (!sends_[i].wait_step(state, std::chrono::microseconds(100)))
      for (Work& other : sends_) other.poll();
  }

  Communicator& world_;
  Memory inside_;
  std::vector<std::byte> outside_;
  std::pair<Link, Link> links_;
  std::vector<Work> sends_;
};

}  // namespace

TEST_CASE("messages pass along a pipeline in both directions, forward and backward in turn") {
  auto world = world_of_messages();
  constexpr int kMicros = 12;
  {
    Stage stage(*world, kMicros);
    const int warm_up = world->size() - 1 - world->rank();
    for (int m = 0; m < kMicros + warm_up; ++m) {
      if (m < kMicros) stage.forward(m);
      if (m >= warm_up) stage.backward(m - warm_up);
    }
    stage.complete_sends();
  }
  world->finish();
}

TEST_CASE("the sender of a message counts its bytes") {
  auto world = world_of_messages();
  auto [before, after] = make_links(*world);
  std::vector<float> data(1000, static_cast<float>(world->rank()));
  const Tensor t{data.data(), {1000}, DType::f32};
  if (after.forward) after.forward->send(t).wait();
  if (before.forward) {
    before.forward->recv(t).wait();
    CHECK(data.back() == static_cast<float>(world->rank() - 1));
    CHECK(before.forward->wire_bytes() == 0);
  }
  CHECK(world->wire_bytes() == (after.forward ? 4000 : 0));
  world->barrier();
}

TEST_CASE("a message needs a communicator of two ranks") {
  auto world = world_of_messages();
  const auto alone = world->split(std::vector<int>{world->rank()});
  float value = 0;
  CHECK_THROWS_AS(alone->send({&value, {1}, DType::f32}), InternalError);
  if (world->size() != 2) CHECK_THROWS_AS(world->recv({&value, {1}, DType::f32}), InternalError);
  world->barrier();
}

}  // namespace dstrain
