// The room where a run on several hosts keeps its temporary files on each host: TMPDIR, or /tmp. Open MPI has the memory
// there that ranks of one host share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dstrain {

struct TemporaryRoom {
  std::string directory;
  std::optional<int64_t> free;  // bytes; nothing: unknown
  std::string problem;          // why no file can be made there; empty if it can
};
void to_json(nlohmann::json& message, const TemporaryRoom& room);
void from_json(const nlohmann::json& message, TemporaryRoom& room);

// Returns the room on this host for the temporary files of `run` (ranks/run_directory.h). Tries to make a file there.
TemporaryRoom temporary_room(const std::string& run);

// Returns how many bytes `ranks` ranks of one host need there.
int64_t needed_room(int64_t ranks);

// Returns what is wrong with the room of a host with so many ranks, and what to do; empty if nothing is.
std::string lack_of_room(const TemporaryRoom& room, int64_t ranks);

// Looks once a second how much room is left while a run lasts.
class RoomWatch {
 public:
  explicit RoomWatch(const std::string& run);

  // Returns for example "/tmp there had 0 bytes left"; empty as long as there was enough.
  const std::string& lack();

 private:
  std::string directory_, lack_;
  int64_t last_look_ns_ = 0;
};

}  // namespace dstrain
