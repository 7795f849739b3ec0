#include "runtime/data/file/data_file.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

// Returns whether so few descriptors are in use that one more is no harm: the least free number is always the next.
bool are_descriptors_few(int newest) {
  struct rlimit most {};
  return ::getrlimit(RLIMIT_NOFILE, &most) != 0 || static_cast<rlim_t>(newest) < most.rlim_cur / 2;
}

}  // namespace

DataFile::DataFile(const std::string& path) : path_(path) {
  InputFile file(path, "the data file", "give another with --data or dstrain.data.path");
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0)
    fail_user("cannot read the size of the data file {}: {}", path, std::strerror(errno));
  if (status.st_size == 0) fail_user("the data file {} is empty", path);
  device_ = status.st_dev;
  file_number_ = status.st_ino;
  bytes_ = status.st_size;
  written_ = status.st_mtim;
  void* mapped =
      ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (mapped == MAP_FAILED)
    fail_user("cannot map the {} bytes of the data file {}: {}", bytes_, path,
              std::strerror(errno));
  data_ = static_cast<const unsigned char*>(mapped);
  watch_.emplace(data_, bytes_);
  if (are_descriptors_few(file.descriptor())) open_ = std::move(file);
}

std::optional<struct stat> DataFile::state_now() const {
  struct stat now {};
  if ((open_ ? ::fstat(open_->descriptor(), &now) : ::stat(path_.c_str(), &now)) == 0) {
    if (now.st_dev == device_ && now.st_ino == file_number_) return now;
    return std::nullopt;
  }
  if (errno == ENOENT) return std::nullopt;
  fail_run("cannot look at the data file {} again: {}", path(), std::strerror(errno));
}

void DataFile::check_whole() const {
  if (!watch_->lost()) return;
  const std::optional<struct stat> now = state_now();
  fail_run(
      "the data file {} was cut short while it was read: it had {} bytes and has {}; restore it, "
      "and --resume from the last checkpoint",
      path(), bytes_, now ? now->st_size : 0);
}

void DataFile::expect(FileSums sums) {
  if (sums.bytes != bytes_)
    fail_user(
        "the data file {} has {} bytes, and its checksums are of one of {}: it is damaged; remove "
        "it, so that the next run makes it anew of its text",
        path(), bytes_, sums.bytes);
  sums_ = std::move(sums);
  checksum_ = sums_.whole;
  compared_ = std::make_unique<std::atomic<bool>[]>(sums_.pieces.size());
}

void DataFile::compare_pieces(int64_t begin, int64_t end) const {
  for (int64_t piece = begin / kPieceBytes; piece < pieces_of_file(end); ++piece) {
    const auto i = static_cast<size_t>(piece);
    if (compared_[i].load(std::memory_order_relaxed)) continue;
    const bool same = checksum_of_piece(data_, bytes_, piece) == sums_.pieces[i];
    check_whole();
    if (!same)
      fail_run(
          "the data file {} is damaged: its bytes {} to {} do not have the checksum that was "
          "written when it was made; remove it, so that the next run makes it anew of its text, "
          "and --resume from the last checkpoint",
          path(), piece * kPieceBytes, std::min(bytes_, (piece + 1) * kPieceBytes) - 1);
    compared_[i].store(true, std::memory_order_relaxed);
  }
}

uint64_t DataFile::checksum() const {
  if (!checksum_) checksum_ = checksum_of_many(data_, bytes_);
  return *checksum_;
}

void DataFile::check_unchanged() const {
  check_whole();
  const std::optional<struct stat> state = state_now();
  if (!state) return;  // the mapping keeps its bytes
  const struct stat& now = *state;
  if (now.st_size == bytes_ && now.st_mtim.tv_sec == written_.tv_sec &&
      now.st_mtim.tv_nsec == written_.tv_nsec)
    return;
  if (now.st_size == bytes_ && checksum_) {
    const bool same = checksum_of_many(data_, bytes_) == *checksum_;
    check_whole();
    if (same) {
      written_ = now.st_mtim;
      return;
    }
  }
  fail_run(
      "the data file {} was written to while the run read it (it had {} bytes and has {}): samples "
      "are no longer what they were; restore the old file and --resume from a checkpoint of "
      "before, "
      "or start again",
      path(), bytes_, now.st_size);
}

DataFile::~DataFile() {
  watch_.reset();
  ::munmap(const_cast<unsigned char*>(data_), static_cast<size_t>(bytes_));
}

}  // namespace dstrain
