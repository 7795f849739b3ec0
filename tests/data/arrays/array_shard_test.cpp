// The containers of arrays: .safetensors, .npz, .npy, folders of .npy.
#include "runtime/data/arrays/array_shard.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/core/error.h"
#include "tests/data/arrays/array_files.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

const std::string kX = bytes_of_values<float>({1, 2, 3, 4}), kY = bytes_of_values<int64_t>({5, 6});

std::string shard_fault(const std::string& path) {
  try {
    open_array_shard(path);
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Contains(path));
    return e.what();
  }
  return "none";
}

void check_x_and_y(const std::string& path) {
  INFO(path);
  const ArrayShard shard = open_array_shard(path);
  REQUIRE(shard.arrays.size() == 2);
  const StoredArray &x = *shard.find("x"), &y = *shard.find("y");
  CHECK(x.type == ElementType::f32);
  CHECK(x.shape == std::vector<int64_t>{2, 2});
  CHECK(y.type == ElementType::i64);
  CHECK(y.shape == std::vector<int64_t>{2});
  const auto bytes = [](const StoredArray& array, size_t size) {
    return std::string(reinterpret_cast<const char*>(array.file->data() + array.begin), size);
  };
  CHECK(bytes(x, kX.size()) == kX);
  CHECK(bytes(y, kY.size()) == kY);
  CHECK(shard.find("z") == nullptr);
  CHECK(shard.numbered().empty());
}

}  // namespace

TEST_CASE("the arrays of a file or folder have the same names, types and bytes in every format") {
  const TempDir dir;
  check_x_and_y(
      dir.write("a.safetensors", safetensors({{"y", "I64", {2}, kY}, {"x", "F32", {2, 2}, kX}})));
  const std::string x = npy("<f4", "(2, 2)", kX), y = npy("<i8", "(2,)", kY);
  check_x_and_y(dir.write("a.npz", ZipFile().add("x.npy", x).add("y.npy", y).bytes()));
  std::filesystem::create_directory(dir / "folder");
  dir.write("folder/y.npy", y);
  dir.write("folder/x.npy", x);
  dir.write("folder/notes.txt", "no array");
  dir.write("folder/.hidden.npy", "no array");
  check_x_and_y(dir / "folder");
  const ArrayShard alone = open_array_shard(dir / "folder/x.npy");
  REQUIRE(alone.arrays.size() == 1);
  CHECK(alone.arrays[0].name == "0");
  CHECK(alone.numbered() == std::vector<const StoredArray*>{&alone.arrays[0]});
}

TEST_CASE("a format is told from a file's bytes") {
  const TempDir dir;
  CHECK(open_array_shard(dir.write("renamed.dat", npy("|u1", "(2,)", "ab"))).arrays.size() == 1);
  CHECK(open_array_shard(dir.write("zip", ZipFile().add("x.npy", npy("|u1", "(2,)", "ab")).bytes()))
            .arrays.size() == 1);
  CHECK(
      open_array_shard(dir.write("tensors", safetensors({{"x", "U8", {2}, "ab"}}))).arrays.size() ==
      1);
}

TEST_CASE("arrays whose names are numbers are in the order of the numbers") {
  const TempDir dir;
  const std::string one = npy("|u1", "(1,)", "a");
  ZipFile zip;
  for (const int i : {10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9}) zip.add(fmt::format("arr_{}.npy", i), one);
  const ArrayShard shard = open_array_shard(dir.write("a.npz", zip.bytes()));
  const std::vector<const StoredArray*> numbered = shard.numbered();
  REQUIRE(numbered.size() == 11);
  CHECK(numbered[10]->name == "arr_10");
  CHECK(numbered[2]->name == "arr_2");
  const auto count = [&](std::string_view first, std::string_view second) {
    return open_array_shard(dir.write("b.npz", ZipFile()
                                                   .add(std::string(first) + ".npy", one)
                                                   .add(std::string(second) + ".npy", one)
                                                   .bytes()))
        .numbered()
        .size();
  };
  CHECK(count("0", "1") == 2);
  CHECK(count("0", "2") == 0);
  CHECK(count("0", "arr_0") == 0);
  CHECK(count("0", "01") == 0);
  CHECK(count("0", "x") == 0);
  CHECK(count("1", "2") == 0);
}

TEST_CASE("files that are no arrays are errors that say what to do") {
  const TempDir dir;
  CHECK_THAT(shard_fault(dir / "none.npz"), Contains("none.npz"));
  CHECK_THAT(shard_fault(dir.write("empty.npy", "")), Contains("is empty"));
  CHECK_THAT(shard_fault(dir.write("a.csv", "1,2,3\n4,5,6\n7,8,9\n")),
             Contains("is no .safetensors, .npz or .npy file: read it in Python"));
  CHECK_THAT(shard_fault(dir.write("a.pt", "\x80\x02}q")), Contains("safetensors.torch.save_file"));
  CHECK_THAT(shard_fault(dir.write("a.bin", "x")), Contains("safetensors.torch.save_file"));
  CHECK_THAT(shard_fault(dir.write("a", "something else")),
             Contains("np.savez and safetensors write"));
  CHECK_THAT(
      shard_fault(dir.write("a.npy", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")),
      Contains("LFS"));
  std::filesystem::create_directory(dir / "folder");
  CHECK_THAT(shard_fault(dir / "folder"), Contains("has no .npy file"));
  dir.write("folder/x.npy", "x");
  CHECK_THAT(shard_fault(dir / "folder"), Contains("folder/x.npy is no .npy file"));
}

TEST_CASE("an .npz file with compressed entries or others than arrays is an error") {
  const TempDir dir;
  const std::string x = npy("|u1", "(2,)", "ab");
  CHECK_THAT(
      shard_fault(dir.write("a.npz", ZipFile().add("x.npy", x, {.method = 8}).bytes())),
      Contains("entry \"x.npy\" is compressed (method 8), expected a file as np.savez writes it: "
               "write it with np.savez, not with np.savez_compressed"));
  CHECK_THAT(shard_fault(dir.write("a.npz", ZipFile().add("archive/data.pkl", x).bytes())),
             Contains("entry \"archive/data.pkl\" is no array: expected an archive of .npy files"));
  CHECK_THAT(
      shard_fault(dir.write("a.npz", ZipFile().add("x.npy", x + "c").bytes())),
      Contains("entry \"x.npy\" is damaged or cut short: its u8 of shape (2) takes 2 bytes"));
  const std::string good = ZipFile().add("x.npy", x).add("y.npy", x).bytes();
  CHECK(shard_fault(dir.write("a.npz", good)) == "none");
  for (size_t size = 1; size < good.size(); ++size)
    CHECK(shard_fault(dir.write("a.npz", good.substr(0, size))) != "none");
  CHECK_THAT(shard_fault(dir.write("a.npz", ZipFile().add("x.npy", x).add("x.npy", x).bytes())),
             Contains("occurs twice"));
  CHECK_THAT(shard_fault(dir.write(
                 "a.npz", ZipFile().add("x.npy", x).add("y.npy", x, {.local = 0}).bytes())),
             Contains("overlaps"));
}

TEST_CASE("a .safetensors file with wrong places, or a header without end, is an error") {
  const TempDir dir;
  const std::string good = safetensors({{"x", "U8", {2}, "ab"}, {"y", "U8", {2}, "cd"}});
  CHECK(shard_fault(dir.write("a.safetensors", good)) == "none");
  for (size_t size = 1; size < good.size(); ++size)
    CHECK(shard_fault(dir.write("a.safetensors", good.substr(0, size))) != "none");
  const auto with_header = [&](std::string_view json) {
    return shard_fault(dir.write(
        "a.safetensors",
        ZipFile::number(static_cast<int64_t>(json.size()), 8) + std::string(json) + "abcd"));
  };
  CHECK_THAT(with_header(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                         R"("y":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})"),
             Contains("overlaps"));
  CHECK_THAT(with_header(R"({"x":{"dtype":"U8","shape":[4294967296,4294967296],)"
                         R"("data_offsets":[0,4]}})"),
             Contains("overflows"));
  CHECK_THAT(with_header(R"({"x":{"dtype":"U8","shape":[9999],"data_offsets":[0,9999]}})"),
             Contains("ends at byte 9999"));
  CHECK_THAT(shard_fault(dir.write("a.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f{")),
             Contains("states a header of 9223372036854775807 bytes"));
  // A type that models do not read is no error of a file: another array may be read.
  CHECK(!open_array_shard(dir.write("a.safetensors", safetensors({{"x", "F8_E5M2", {2}, "ab"}})))
             .arrays[0]
             .type);
}

}  // namespace dstrain
