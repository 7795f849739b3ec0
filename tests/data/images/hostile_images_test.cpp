// Files that are not what they should be: one error each, which names the file.
#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/core/error.h"
#include "runtime/data/images/decode.h"
#include "runtime/data/open_dataset.h"
#include "tests/data/images/image_files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

void put(const TempDir& dir, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(dir / name).parent_path());
  dir.write(name, bytes);
}

// Two classes of one image of 8 x 8 pixels each, and a.png as a further one of the first.
std::string fault_with(const std::string& bytes, int64_t size = 0) {
  const TempDir dir;
  put(dir, "one/0.png", png_file(8, 8, 3, test_pixels(192, 0)));
  put(dir, "two/0.png", png_file(8, 8, 3, test_pixels(192, 1)));
  put(dir, "one/a.png", bytes);
  const ModelFamily family = images_family(3, 8, 8);
  Job job = image_job({dir.path()}, family);
  job.data.images.size = size;
  try {
    const auto data = open_dataset(job);
    std::vector<float> x(3 * 192);
    std::vector<int32_t> y(3);
    const InputTensor inputs[] = {{"x", InputRole::array, {x.data(), {3, 3, 8, 8}, DType::f32}},
                                  {"y", InputRole::array, {y.data(), {3}, DType::i32}}};
    data->read(Split::train, 0, 3, inputs);
  } catch (const UserError& e) {
    return e.what();
  } catch (const RunError& e) {
    return std::string("while reading: ") + e.what();
  }
  return "none";
}

std::string folder_fault(const std::vector<std::pair<std::string, std::string>>& files) {
  const TempDir dir;
  for (const auto& [name, bytes] : files) {
    if (name.ends_with("/"))
      std::filesystem::create_directories(dir / name);
    else
      put(dir, name, bytes);
  }
  const ModelFamily family = images_family(3, 8, 8);
  try {
    open_dataset(image_job({dir.path()}, family));
  } catch (const UserError& e) {
    return e.what();
  }
  return "none";
}

std::string sample_jpeg() {
  return read_input_file(std::string(DSTRAIN_SOURCE_DIR) + "/tests/data/images/sample.jpg",
                         "the sample", 1 << 20);
}

std::string with_size(const std::string& png, uint32_t width, uint32_t height) {
  const std::string header = png.substr(24, 5);
  return png.substr(0, 8) +
         png_chunk("IHDR", big_endian_bytes(width) + big_endian_bytes(height) + header) +
         png.substr(33);
}

}  // namespace

TEST_CASE("a damaged image is an error that names it, at the start where its ends tell") {
  SKIP_UNLESS(can_decode(ImageKind::png), "a build without libpng");
  const std::string good = png_file(8, 8, 3, test_pixels(192, 2));
  CHECK(fault_with(good) == "none");
  CHECK_THAT(fault_with(""), Contains("one/a.png: it is empty"));
  CHECK_THAT(fault_with("this is text, and no image at all"),
             Contains("one/a.png: it is neither PNG nor JPEG, as its first bytes tell"));
  CHECK_THAT(fault_with(good.substr(0, 20)), Contains("one/a.png: it is cut short"));
  CHECK_THAT(fault_with(good.substr(0, good.size() - 30)),
             Contains("one/a.png: it is cut short: it does not end as a PNG file does"));
  CHECK_THAT(fault_with(good.substr(0, 12) + "JUNK" + good.substr(16)),
             Contains("it begins as a PNG file does, and has no header behind that"));
  std::string damaged = good;
  damaged[60] = static_cast<char>(damaged[60] ^ 0x55);
  CHECK_THAT(fault_with(damaged),
             Contains("while reading: the image ") && Contains("one/a.png is damaged: IDAT: "));
  // A file that is whole by its ends, and lacks most of its rows.
  const std::string few = png_file(8, 1, 3, test_pixels(24, 2));
  CHECK_THAT(fault_with(with_size(few, 8, 8)),
             Contains("while reading: ") && Contains("one/a.png is damaged"));
}

TEST_CASE("nothing is allocated for the size that a header alone states") {
  SKIP_UNLESS(can_decode(ImageKind::png), "a build without libpng");
  const std::string good = png_file(8, 8, 3, test_pixels(192, 2));
  CHECK_THAT(fault_with(with_size(good, 100000, 100000), 8),
             Contains("its header says 100000 x 100000 pixels, expected at most 67108864"));
  CHECK_THAT(fault_with(with_size(good, 8000, 8000), 8),
             Contains("its header says 8000 x 8000 pixels, which its ") &&
                 Contains("bytes cannot hold: it is damaged, or cut short"));
  CHECK_THAT(fault_with(with_size(good, 0, 8), 8), Contains("its header says 0 x 8 pixels"));
  CHECK_THAT(fault_with(with_size(good, 0xffffffffu, 0xffffffffu), 8),
             Contains("expected at most"));
  // A strip whose other side would be as long as the shorter one is scaled up.
  CHECK_THAT(fault_with(png_file(1, 17000, 3, test_pixels(3 * 17000, 0)), 4096),
             Contains("too long a strip to be scaled to 4096"));
}

TEST_CASE("a damaged JPEG file is an error that names it") {
  SKIP_UNLESS(can_decode(ImageKind::jpeg) && can_decode(ImageKind::png),
              "a build without a decoder");
  const std::string good = sample_jpeg();
  CHECK(fault_with(good, 8) == "none");
  CHECK(fault_with(good + "cameras append things", 8) == "none");
  CHECK_THAT(fault_with(good.substr(0, 10), 8), Contains("one/a.png: it is cut short"));
  CHECK_THAT(fault_with(good.substr(0, good.size() - 2), 8),
             Contains("one/a.png: it is cut short: it does not end as a JPEG file does"));
  // The end is there, and not what is before it.
  const size_t scan = good.find("\xff\xda");
  REQUIRE(scan != std::string::npos);
  CHECK_THAT(fault_with(good.substr(0, scan + 16) + "\xff\xd9", 8),
             Contains("while reading: ") && Contains("one/a.png is damaged"));
  CHECK_THAT(fault_with(good.substr(0, 20) + "\xff\xd9", 8), Contains("one/a.png: it is "));
  std::string wide = good;
  const size_t frame = wide.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  for (size_t i = 5; i < 9; ++i) wide[frame + i] = '\x1f';
  CHECK_THAT(fault_with(wide, 8), Contains("bytes cannot hold"));
  std::string deep = good;
  deep[frame + 4] = '\x0c';
  CHECK_THAT(fault_with(deep, 8), Contains("it has 12 bits for each value, expected 8"));
  std::string inks = good;
  inks[frame + 9] = '\x04';
  CHECK_THAT(fault_with(inks, 8), Contains("it has 4 channels, expected 1 or 3"));
}

TEST_CASE("folders that are no classes of images say what was expected") {
  const std::string image = png_file(8, 8, 3, test_pixels(192, 0));
  CHECK_THAT(folder_fault({{"a.png", image}}),
             Contains("has no folders: expected a folder for each class"));
  CHECK_THAT(folder_fault({{"only/a.png", image}}),
             Contains("has one class, only, and there is nothing to tell apart"));
  CHECK_THAT(folder_fault({{"one/a.png", image}, {"two/", ""}}),
             Contains("/two has no .png, .jpg or .jpeg file"));
  CHECK_THAT(folder_fault({{"one/a.png", image}, {"two/deeper/a.png", image}}),
             Contains("/two has the folder deeper"));
  SKIP_UNLESS(can_decode(ImageKind::png), "a build without libpng");
  CHECK_THAT(
      folder_fault({{"one/a.png", image}, {"two/b.png", png_file(4, 3, 3, test_pixels(36, 0))}}),
      Contains("the images have different sizes: ") && Contains("one/a.png has 8 x 8 pixels") &&
          Contains("two/b.png has 4 x 3") && Contains("--set dstrain.data.size=8"));
  const std::string small = png_file(4, 3, 3, test_pixels(36, 0));
  CHECK_THAT(folder_fault({{"one/a.png", small}, {"two/b.png", small}}),
             Contains("has 4 x 3 pixels (width x height), and those of the model have 8 x 8"));
}

TEST_CASE("files that are none of CIFAR's say what was expected") {
  const TempDir dir;
  const ModelFamily family = images_family(3, 32, 32);
  const auto fault = [&](std::vector<std::string> paths, const ModelFamily& of) {
    try {
      open_dataset(image_job(std::move(paths), of));
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  const std::string good = dir.write("data_batch_1.bin", cifar_record(9, 0) + cifar_record(0, 1));
  CHECK(fault({good}, family) == "none");
  const std::string cut = dir.write("cut.bin", cifar_record(1, 0).substr(0, 3000));
  CHECK_THAT(fault({cut}, family),
             Contains("cut.bin has 3000 bytes, which are no multiple of the 3073 of a record"));
  const std::string wrong = dir.write("wrong.bin", cifar_record(3, 0) + cifar_record(10, 1));
  CHECK_THAT(fault({wrong}, family),
             Contains("wrong.bin: record 1 has the label 10, and those of CIFAR-10 are below 10"));
  CHECK_THAT(fault({dir / "none.bin"}, family), Contains("none.bin are not there: give a folder") &&
                                                    Contains("cifar-10-binary.tar.gz"));
  const std::string hundred = dir.write("train.bin", "\x05" + cifar_record(99, 0));
  CHECK(fault({hundred}, family) == "none");
  CHECK_THAT(fault({good, hundred}, family),
             Contains("train.bin is of CIFAR-100, and ") && Contains("is of CIFAR-10"));
  const ModelFamily small = images_family(3, 28, 28);
  CHECK_THAT(fault({good}, small),
             Contains("whose images are 3 x 32 x 32, and those of the model are 3 x 28 x 28"));
}

}  // namespace dstrain
