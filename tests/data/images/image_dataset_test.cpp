#include "runtime/data/images/image_dataset.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "runtime/core/error.h"
#include "runtime/core/philox.h"
#include "runtime/data/images/decode.h"
#include "runtime/data/open_dataset.h"
#include "tests/data/images/image_files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

constexpr int64_t kElements = 3 * 32 * 32;

struct Images {
  std::vector<float> x;
  std::vector<int32_t> y;
};

Images read_images(const Dataset& data, Split split, int64_t first, int64_t count,
                   Shape sizes = {3, 32, 32}) {
  const int64_t elements = sizes.elements();
  Images batch{std::vector<float>(static_cast<size_t>(count * elements)),
               std::vector<int32_t>(static_cast<size_t>(count))};
  const InputTensor inputs[] = {
      {"x", InputRole::array, {batch.x.data(), {count, sizes[0], sizes[1], sizes[2]}, DType::f32}},
      {"y", InputRole::array, {batch.y.data(), {count}, DType::i32}}};
  data.read(split, first, count, inputs);
  return batch;
}

const ModelFamily& cifar_family() {
  static const ModelFamily family = images_family(3, 32, 32);
  return family;
}

// Twelve records in two files, and three for validation.
struct CifarFolder : TempDir {
  CifarFolder() {
    std::string first, second, test;
    for (int i = 0; i < 8; ++i) first += cifar_record(i % 10, i);
    for (int i = 8; i < 12; ++i) second += cifar_record(i % 10, i);
    for (int i = 20; i < 23; ++i) test += cifar_record(i % 10, i);
    write("data_batch_1.bin", first);
    write("data_batch_2.bin", second);
    write("test_batch.bin", test);
    write("batches.meta.txt", "airplane\n");
  }
};

float value_of(int byte, float mean, float std) {
  return (static_cast<float>(byte) / 255.0f - mean) / std;
}

// Eight images of 4 x 3 pixels in each of two classes; sample i has test_pixels() of the number i.
struct ClassFolder : TempDir {
  ClassFolder() {
    for (int i = 0; i < 16; ++i)
      write(fmt::format("{}/{:02}.PNG", i < 8 ? "cat" : "dog", i),
            png_file(4, 3, 3, test_pixels(36, i)));
    write("README.txt", "not an image");
    write("cat/notes.txt", "not an image either");
    write(".hidden/x.png", "nobody looks here");
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    TempDir::write(name, bytes);
  }
};

}  // namespace

TEST_CASE("CIFAR's files are samples in their order, with values of the given mean and deviation") {
  const CifarFolder folder;
  Job job = image_job({folder.path()}, cifar_family());
  job.data.images = {.mean = {0.1, 0.2, 0.3}, .std = {0.5}};
  job.data.val_path = folder.path();
  const auto data = open_dataset(job);
  CHECK(data->samples(Split::train) == 12);
  CHECK(data->samples(Split::validation) == 3);
  CHECK_THAT(data->summary(),
             Contains("images of CIFAR-10; 12 training samples, 3 for validation"));
  CHECK(data->files(Split::train).paths.size() == 2);
  CHECK(data->files(Split::train).bytes == 12 * 3073);
  const Images batch = read_images(*data, Split::train, 7, 6);
  CHECK(batch.y == std::vector<int32_t>{7, 8, 9, 0, 1, 0});  // the last one is the first again
  const float means[] = {0.1f, 0.2f, 0.3f};
  for (int64_t i = 0; i < 6; ++i) {
    const std::vector<unsigned char> bytes = test_pixels(kElements, (7 + i) % 12);
    bool same = true;
    for (int64_t e = 0; e < kElements; ++e)
      same = same && batch.x[static_cast<size_t>(i * kElements + e)] ==
                         value_of(bytes[static_cast<size_t>(e)], means[e / 1024], 0.5f);
    CHECK(same);
  }
  const Images test = read_images(*data, Split::validation, 0, 3);
  CHECK(std::set<int32_t>(test.y.begin(), test.y.end()) == std::set<int32_t>{0, 1, 2});
}

TEST_CASE("training images are cut and mirrored by seed and place alone, validation images never") {
  const CifarFolder folder;
  Job job = image_job({folder.path()}, cifar_family());
  job.data.val_fraction = 0.25;
  job.data.images = {.crop = 4, .flip = true};
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 9);
  const Images all = read_images(*data, Split::train, 0, 36);
  int mirrored = 0;
  std::set<std::pair<int64_t, int64_t>> places;
  for (int64_t place = 0; place < 36; ++place) {
    const PhiloxBlock words =
        philox(stream_key(job.seed, kImageStream), {static_cast<uint32_t>(place), 0, 0, 0});
    const int64_t top = static_cast<int64_t>(uint64_t{words[0]} * 9 >> 32) - 4,
                  left = static_cast<int64_t>(uint64_t{words[1]} * 9 >> 32) - 4;
    const bool flip = (words[2] & 1) != 0;
    mirrored += flip;
    places.emplace(top, left);
    const std::vector<unsigned char> bytes = test_pixels(kElements, place % 9);
    bool same = true;
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < 32; ++y)
        for (int64_t x = 0; x < 32; ++x) {
          const int64_t row = top + y, column = left + (flip ? 31 - x : x);
          const bool inside = row >= 0 && row < 32 && column >= 0 && column < 32;
          const int byte = inside ? bytes[static_cast<size_t>(c * 1024 + row * 32 + column)] : 0;
          same = same && all.x[static_cast<size_t>(place * kElements + c * 1024 + y * 32 + x)] ==
                             value_of(byte, 0, 1);
        }
    CHECK(same);
  }
  CHECK((mirrored > 8 && mirrored < 28));
  CHECK(places.size() > 20);
  // However places are divided among reads, as ranks and micro-batches do, they have the same images.
  for (int64_t place = 0; place < 36; ++place)
    CHECK(std::ranges::equal(
        read_images(*data, Split::train, place, 1).x,
        std::span(all.x).subspan(static_cast<size_t>(place * kElements), kElements)));
  job.seed += 1;
  CHECK(read_images(*open_dataset(job), Split::train, 0, 36).x != all.x);
  const Images test = read_images(*data, Split::validation, 0, 3);
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<unsigned char> bytes =
        test_pixels(kElements, test.y[i] < 9 ? test.y[i] + 10 : 9);
    bool same = true;
    for (size_t e = 0; e < kElements; ++e)
      same = same && test.x[i * kElements + e] == value_of(bytes[e], 0, 1);
    CHECK(same);
  }
}

TEST_CASE("folders are classes by their names, and hold out the end of each class") {
  SKIP_UNLESS(can_decode(ImageKind::png), "a build without libpng");
  const ClassFolder folder;
  const ModelFamily family = images_family(3, 3, 4);
  Job job = image_job({folder.path()}, family);
  job.data.val_fraction = 0.25;
  const auto data = open_dataset(job);
  CHECK(data->samples(Split::train) == 12);
  CHECK(data->samples(Split::validation) == 4);
  CHECK_THAT(data->summary(), Contains("images in 2 classes (cat, dog); 12 training samples, 4 for "
                                       "validation"));
  const Images batch = read_images(*data, Split::train, 0, 12, {3, 3, 4});
  for (int i = 0; i < 12; ++i) {
    CHECK(batch.y[static_cast<size_t>(i)] == (i < 6 ? 0 : 1));
    const std::vector<unsigned char> bytes = test_pixels(36, i < 6 ? i : i + 2);
    for (int c = 0; c < 3; ++c)
      for (int p = 0; p < 12; ++p)
        CHECK(batch.x[static_cast<size_t>(i * 36 + c * 12 + p)] ==
              value_of(bytes[static_cast<size_t>(p * 3 + c)], 0, 1));
  }
  const Images test = read_images(*data, Split::validation, 0, 4, {3, 3, 4});
  CHECK(std::ranges::count(test.y, 0) == 2);
  // The checksum is of names and contents.
  const uint64_t before = data->fingerprint();
  CHECK(open_dataset(job)->fingerprint() == before);
  std::filesystem::rename(folder / "cat", folder / "bird");
  CHECK(open_dataset(job)->fingerprint() != before);
}

TEST_CASE("gray images are three equal channels, and transparency is dropped") {
  SKIP_UNLESS(can_decode(ImageKind::png), "a build without libpng");
  const ClassFolder folder;
  for (int i = 0; i < 8; ++i) {
    folder.write(fmt::format("cat/{:02}.PNG", i), png_file(4, 3, 1, test_pixels(12, i)));
    folder.write(fmt::format("dog/{:02}.PNG", i + 8), png_file(4, 3, 4, test_pixels(48, i)));
  }
  const ModelFamily family = images_family(3, 3, 4);
  const auto data = open_dataset(image_job({folder.path()}, family));
  const Images batch = read_images(*data, Split::train, 0, 16, {3, 3, 4});
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < 12; ++p) {
      CHECK(batch.x[static_cast<size_t>(c * 12 + p)] ==
            value_of(test_pixels(12, 0)[static_cast<size_t>(p)], 0, 1));
      CHECK(batch.x[static_cast<size_t>(8 * 36 + c * 12 + p)] ==
            value_of(test_pixels(48, 0)[static_cast<size_t>(p * 4 + c)], 0, 1));
    }
  const ModelFamily gray = images_family(1, 3, 4);
  CHECK_THROWS_WITH(open_dataset(image_job({folder.path()}, gray)),
                    Contains("has colors, and the images of the model have one channel"));
}

TEST_CASE("JPEG files are decoded, and scaled where the configuration says so") {
  SKIP_UNLESS(can_decode(ImageKind::jpeg) && can_decode(ImageKind::png),
              "a build without a decoder");
  // sample.jpg has 32 x 16 pixels: red the left half, blue the right one.
  const ClassFolder folder;
  std::filesystem::copy_file(std::string(DSTRAIN_SOURCE_DIR) + "/tests/data/images/sample.jpg",
                             folder / "cat/00.PNG",
                             std::filesystem::copy_options::overwrite_existing);
  const ModelFamily family = images_family(3, 8, 8);
  Job job = image_job({folder.path()}, family);
  job.data.images.size = 8;
  const auto data = open_dataset(job);
  const Images batch = read_images(*data, Split::train, 0, 1, {3, 8, 8});
  for (size_t y = 0; y < 8; ++y)
    for (size_t x = 0; x < 8; ++x) {
      const size_t at = y * 8 + x;
      INFO(x << ' ' << y);
      if (x == 3 || x == 4) continue;  // where the colors meet
      CHECK(batch.x[at] == Approx(x < 4 ? 1 : 0).margin(0.02));
      CHECK(batch.x[64 + at] == Approx(0).margin(0.02));
      CHECK(batch.x[128 + at] == Approx(x < 4 ? 0 : 1).margin(0.02));
    }
  // Training takes any part of a longer image, and of the black around it.
  job.data.images.crop = 2;
  const auto cut = open_dataset(job);
  std::set<std::vector<float>> parts;
  for (int64_t epoch = 0; epoch < 20; ++epoch)
    parts.insert(read_images(*cut, Split::train, epoch * 16, 1, {3, 8, 8}).x);
  CHECK(parts.size() > 10);
}

TEST_CASE("images that changed while the run read them are errors, a new time alone is none") {
  SKIP_UNLESS(can_decode(ImageKind::png), "a build without libpng");
  const ClassFolder folder;
  const ModelFamily family = images_family(3, 3, 4);
  const auto data = open_dataset(image_job({folder.path()}, family));
  const uint64_t sum = data->fingerprint();
  const auto first = [&data] { return read_images(*data, Split::train, 0, 1, {3, 3, 4}).x; };
  const std::vector<float> before = first();
  const std::string name = folder / "cat/00.PNG";
  std::filesystem::last_write_time(name,
                                   std::filesystem::last_write_time(name) + std::chrono::hours(1));
  CHECK(first() == before);
  folder.write("cat/00.PNG", png_file(4, 3, 3, test_pixels(36, 99)));
  std::filesystem::last_write_time(name,
                                   std::filesystem::last_write_time(name) + std::chrono::hours(2));
  CHECK_THROWS_WITH(first(), Contains("cat/00.PNG was written to since the run opened it"));
  folder.write("cat/00.PNG", "short");
  CHECK_THROWS_WITH(first(), Contains("has got another size since the run opened it"));
  std::filesystem::remove(name);
  CHECK_THROWS_WITH(first(), Contains("was removed or cut short since the run opened it"));
  CHECK(data->fingerprint() == sum);
}

}  // namespace dstrain
