#include "launcher/input/exchange_texts.h"

#include <algorithm>

namespace dstrain {
namespace {

// Returns the length of each rank's text, by rank. Collective.
std::vector<int64_t> lengths_of_all(Communicator& comm, const std::string& mine) {
  std::vector<double> sizes(static_cast<size_t>(comm.size()));
  const auto size = static_cast<double>(mine.size());
  comm.gather_values({&size, 1}, sizes);
  return {sizes.begin(), sizes.end()};
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  const std::vector<int64_t> lengths = lengths_of_all(comm, mine);
  const int64_t longest = std::ranges::max(lengths), ranks = comm.size();
  std::vector<std::string> texts;
  if (longest == 0) {
    texts.resize(static_cast<size_t>(ranks));
    return texts;
  }
  std::string padded = mine, all(static_cast<size_t>(longest * ranks), '\0');
  padded.resize(static_cast<size_t>(longest));
  comm.all_gather({padded.data(), {longest}, DType::u8}, {all.data(), {longest * ranks}, DType::u8})
      .wait();
  for (int64_t rank = 0; rank < ranks; ++rank)
    texts.push_back(all.substr(static_cast<size_t>(rank * longest),
                               static_cast<size_t>(lengths[static_cast<size_t>(rank)])));
  return texts;
}

std::string broadcast_text(Communicator& comm, std::string mine, int root) {
  const int64_t bytes = lengths_of_all(comm, mine)[static_cast<size_t>(root)];
  mine.resize(static_cast<size_t>(bytes));
  if (bytes > 0) comm.broadcast({mine.data(), {bytes}, DType::u8}, root).wait();
  return mine;
}

}  // namespace dstrain
