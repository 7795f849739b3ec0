// A data file that changes while it is read.
#include <filesystem>
#include <fstream>

#include "tests/data/dataset_fixture.h"

namespace dstrain {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// Several pages of ASCII text.
std::string pages() {
  std::string text;
  while (text.size() < 20'000) text += "the quick brown fox ";
  return text;
}

TEST_CASE("a file cut short while it is read is an error and not the end of the process") {
  TempDir dir;
  for (const DataFormat format : {DataFormat::characters, DataFormat::bytes, DataFormat::tokens}) {
    const std::string path = dir.write("t.txt", pages());
    Job job = text_job(path, 8, format);
    job.model.set("vocab_size", 65536);
    const auto data = open_dataset(job);
    const int64_t last = data->samples(Split::train) - 1;
    CHECK_NOTHROW(read_samples(*data, Split::train, last, 1, 8));
    fs::resize_file(path, 5000);
    CHECK_NOTHROW(read_samples(*data, Split::train, 0, 1, 8));
    CHECK_THROWS_AS(read_samples(*data, Split::train, last, 1, 8), RunError);
    CHECK_THROWS_WITH(
        read_samples(*data, Split::train, 0, 1, 8),
        Contains("t.txt was cut short while it was read: it had 20000 bytes and has 5000"));
    CHECK_THROWS_AS(data->check_unchanged(), RunError);
  }
}

TEST_CASE("of two files one may be cut short") {
  TempDir dir;
  const std::string path = dir.write("a.txt", pages());
  const auto cut = open_dataset(text_job(path, 8));
  const auto whole = open_dataset(text_job(dir.write("b.txt", pages()), 8));
  fs::resize_file(path, 0);
  CHECK_THROWS_AS(read_samples(*cut, Split::train, 0, 1, 8), RunError);
  CHECK_NOTHROW(read_samples(*whole, Split::train, 2000, 1, 8));
  CHECK_NOTHROW(whole->check_unchanged());
}

TEST_CASE(
    "a file written to in place is found by its size or time, one put in its place is not it") {
  TempDir dir;
  const std::string path = dir.write("t.txt", pages());
  const auto data = open_dataset(text_job(path, 8));
  CHECK_NOTHROW(data->check_unchanged());

  fs::rename(path, dir / "old.txt");
  dir.write("t.txt", "another text");
  CHECK_NOTHROW(data->check_unchanged());

  SECTION("longer") {
    std::ofstream(dir / "old.txt", std::ios::app) << "more";
    CHECK_THROWS_WITH(
        data->check_unchanged(),
        Contains("t.txt was written to while the run read it (it had 20000 bytes and has 20004)"));
  }
  SECTION("of the same size") {
    std::fstream(dir / "old.txt", std::ios::in | std::ios::out) << "THE";
    fs::last_write_time(dir / "old.txt", fs::file_time_type::clock::now() + std::chrono::hours(1));
    CHECK_THROWS_AS(data->check_unchanged(), RunError);
  }
}

TEST_CASE("a file with another time is unchanged where its bytes are known and the same") {
  TempDir dir;
  const std::string path = dir.write("t.txt", pages());
  const auto data = open_dataset(text_job(path, 8));
  const auto touch = [&path](int hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(hours));
  };
  SECTION("unknown") {
    touch(1);
    CHECK_THROWS_AS(data->check_unchanged(), RunError);
  }
  SECTION("known") {
    data->fingerprint();
    touch(1);
    CHECK_NOTHROW(data->check_unchanged());
    CHECK_NOTHROW(data->check_unchanged());
    std::fstream(path, std::ios::in | std::ios::out) << "THE";
    touch(2);
    CHECK_THROWS_AS(data->check_unchanged(), RunError);
  }
}

}  // namespace
}  // namespace dstrain
