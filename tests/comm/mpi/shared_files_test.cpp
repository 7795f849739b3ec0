#include "runtime/comm/mpi/shared_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

constexpr int64_t kBytes = 1 << 20;

// A file without room, mapped as Open MPI does.
class MappedFile {
 public:
  explicit MappedFile(std::string path) : path_(std::move(path)) {
    const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(file >= 0);
    REQUIRE(::ftruncate(file, kBytes) == 0);
    memory_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    REQUIRE(memory_ != MAP_FAILED);
  }
  ~MappedFile() { ::munmap(memory_, kBytes); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  int64_t room() const {
    struct stat status {};
    REQUIRE(::stat(path_.c_str(), &status) == 0);
    return int64_t{status.st_blocks} * 512;
  }

 private:
  std::string path_;
  void* memory_ = nullptr;
};

TEST_CASE("shared files are those of Open MPI's messages in its directory, each once") {
  const char* const maps =
      "7f00-7f10 rw-s 00000000 00:1c 5    /tmp/a b/vader_segment.node1.0.1.2\n"
      "7f10-7f20 rw-s 00001000 00:1c 5    /tmp/a b/vader_segment.node1.0.1.2\n"
      "7f20-7f30 rw-s 00000000 00:1c 6    /tmp/a b/deeper/vader_segment.node1.0.1.3\n"
      "7f30-7f40 rw-s 00000000 00:1c 7    /tmp/a bc/vader_segment.node1.0.1.2\n"
      "7f40-7f50 rw-s 00000000 00:1c 8    /tmp/a b/other\n"
      "7f50-7f60 rw-p 00000000 00:00 0\n";
  CHECK(shared_files(maps, "/tmp/a b") ==
        std::vector<std::string>{"/tmp/a b/vader_segment.node1.0.1.2",
                                 "/tmp/a b/deeper/vader_segment.node1.0.1.3"});
}

TEST_CASE("the room of shared files is taken where dstrain has named their directory") {
  const TempDir directory;
  const MappedFile shared(directory.path() + "/vader_segment.node1.0.1.2");
  const MappedFile other(directory.path() + "/other");
  ::unsetenv("OMPI_MCA_btl_vader_backing_directory");
  take_room_of_shared_files();
  CHECK(shared.room() < kBytes);
  ::setenv("OMPI_MCA_btl_vader_backing_directory", directory.path().c_str(), 1);
  take_room_of_shared_files();
  ::unsetenv("OMPI_MCA_btl_vader_backing_directory");
  CHECK(shared.room() >= kBytes);
  CHECK(other.room() < kBytes);
}

}  // namespace
}  // namespace dstrain
