// Moves tensors between memory and a disk store, as often as it is asked to: fio_ratio.py compares it with fio.
//   disk_bench PATH BYTES BLOCK_SIZE QUEUE_DEPTH THREADS
// For each line "write" or "read" of its input it writes or reads all tensors, BYTES together, and prints the bytes per
// second. The tensors have odd sizes of about 24 MB; eight are in flight at a time.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "runtime/core/memory.h"
#include "runtime/core/philox.h"
#include "runtime/storage/disk/disk_store.h"

namespace dstrain {
namespace {

constexpr int64_t kTensorBytes = 24'000'003;
constexpr size_t kInFlight = 8;

class Tensors {
 public:
  Tensors(const std::string& path, int64_t bytes, const AioConfig& config)
      : extents_(extents_of(bytes)),
        files_({path}, DiskStore::bytes_of_each_file(extents_, 1, config), calls_),
        store_(files_, extents_, config, std::chrono::seconds(60)) {
    for (size_t i = 0; i < kInFlight; ++i) {
      memory_.push_back(Memory::anonymous(kTensorBytes, "a tensor"));
      for (int64_t at = 0; at + 8 <= kTensorBytes; at += 8) {
        const uint64_t word = mix64(i << 40 | static_cast<uint64_t>(at));
        std::memcpy(memory_[i].data() + at, &word, 8);
      }
    }
  }

  // Returns bytes per second.
  double move(bool writes) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<DiskStore::Ticket> tickets;
    int64_t moved = 0;
    for (size_t i = 0; i < extents_.size(); ++i) {
      if (i >= kInFlight) tickets[i - kInFlight].wait();
      const auto extent = static_cast<int>(i);
      std::byte* const data = memory_[i % kInFlight].data();
      const int64_t bytes = store_.bytes(extent);
      tickets.push_back(writes ? store_.write(extent, 0, data, bytes)
                               : store_.read(extent, 0, data, bytes));
      moved += bytes;
    }
    for (const auto& ticket : tickets) ticket.wait();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    return static_cast<double>(moved) / time.count();
  }

 private:
  static std::vector<DiskExtent> extents_of(int64_t bytes) {
    std::vector<DiskExtent> extents;
    for (; bytes > 0; bytes -= kTensorBytes)
      extents.push_back({std::to_string(extents.size()), std::min(bytes, kTensorBytes)});
    return extents;
  }

  std::vector<DiskExtent> extents_;
  IoCalls calls_;
  SwapFiles files_;
  DiskStore store_;
  std::vector<Memory> memory_;
};

int run(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: disk_bench PATH BYTES BLOCK_SIZE QUEUE_DEPTH THREADS\n";
    return 1;
  }
  Tensors tensors(argv[1], std::atoll(argv[2]),
                  {.block_size = std::atoll(argv[3]),
                   .queue_depth = std::atoll(argv[4]),
                   .intra_op_parallelism = std::atoll(argv[5])});
  tensors.move(true);  // the first write of reserved blocks is slower
  for (std::string line; std::getline(std::cin, line);)
    std::cout << tensors.move(line == "write") << std::endl;
  return 0;
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  try {
    return dstrain::run(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "disk_bench: " << e.what() << "\n";
    return 1;
  }
}
