#include "launcher/hosts/checks/temporary_room.h"

#include <filesystem>

#include "launcher/connection/line_channel.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"
#include "runtime/core/text.h"
#include "runtime/storage/disk/free_space.h"
#include "runtime/storage/output_file.h"

namespace dstrain {
namespace {

constexpr int64_t kLookEvery = 1'000'000'000;  // nanoseconds
// Open MPI 4.1 fills 8 MiB for a host, and for each rank up to the 4 MiB through which ranks of a host exchange messages.
constexpr int64_t kForHost = int64_t{12} << 20, kForRank = int64_t{4} << 20;
constexpr int64_t kNothingLeft = int64_t{1} << 20;  // less than what any of its files grows by

constexpr const char* kAdvice =
    "free space there, or let TMPDIR name a directory with more, at the same path on all hosts";

std::string directory_of(const std::string& run) {
  return std::filesystem::path(run).parent_path().string();
}

}  // namespace

void to_json(nlohmann::json& message, const TemporaryRoom& room) {
  message = {{"directory", to_json_text(room.directory)},
             {"free", room.free.value_or(-1)},
             {"problem", to_json_text(room.problem)}};
}

void from_json(const nlohmann::json& message, TemporaryRoom& room) {
  room.directory = from_json_text(message.at("directory").get<std::string>());
  room.problem = from_json_text(message.at("problem").get<std::string>());
  if (const auto free = message.at("free").get<int64_t>(); free >= 0) room.free = free;
}

TemporaryRoom temporary_room(const std::string& run) {
  const std::string directory = directory_of(run);
  return {directory, free_bytes(directory), new_file_problem(directory)};
}

int64_t needed_room(int64_t ranks) {
  return kForHost + ranks * kForRank;
}

std::string lack_of_room(const TemporaryRoom& room, int64_t ranks) {
  if (!room.problem.empty())
    return fmt::format("no temporary file can be made in {} there: {}: {}", room.directory,
                       room.problem, kAdvice);
  if (!room.free || *room.free >= needed_room(ranks)) return "";
  return fmt::format("{} there has {} left, and temporary files of {} need {}: {}", room.directory,
                     bytes_text(static_cast<double>(*room.free)), counted(ranks, "rank"),
                     bytes_text(static_cast<double>(needed_room(ranks))), kAdvice);
}

RoomWatch::RoomWatch(const std::string& run) : directory_(directory_of(run)) {}

const std::string& RoomWatch::lack() {
  const int64_t now = monotonic_ns();
  if (!lack_.empty() || now - last_look_ns_ < kLookEvery) return lack_;
  last_look_ns_ = now;
  if (const auto free = free_bytes(directory_); free && *free < kNothingLeft)
    lack_ = fmt::format("{} there had {} left: {}", directory_,
                        bytes_text(static_cast<double>(*free)), kAdvice);
  return lack_;
}

}  // namespace dstrain
