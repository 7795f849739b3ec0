// The section dstrain.data of a model that reads images.
#include <catch2/catch.hpp>

#include "runtime/config/family/image_inputs.h"
#include "tests/config/config_fixture.h"
#include "tests/data/images/image_files.h"
#include "tests/support/array_model.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

Ask with_images(const std::string& data) {
  static const ModelFamily family = images_family(3, 24, 24);
  static const ModelRegistry models({&family});
  Ask a = ask(trains_with(R"("dstrain": {"data": {)" + data + "}}"));
  a.request.models = &models;
  return a;
}

}  // namespace

TEST_CASE("images: how samples are made of them is in the section") {
  const Job usual = with_images(R"("format": "images", "path": "x")").job();
  CHECK(usual.data.format == DataFormat::images);
  CHECK(usual.data.images == ImageConfig{});
  const Job job = with_images(R"("format": "images", "path": "x", "mean": [0.1, 0.2, 0.3],
                                 "std": 0.5, "crop": 4, "flip": true, "size": 24)")
                      .job();
  CHECK(job.data.images ==
        ImageConfig{.mean = {0.1, 0.2, 0.3}, .std = {0.5}, .crop = 4, .flip = true, .size = 24});
  CHECK(
      setting(with_images(R"("format": "images", "mean": [0.5, 0, 1])").load(), "dstrain.data.mean")
          .value == "[0.5, 0, 1]");
}

TEST_CASE("images: folders without .npy files are images, and files are arrays") {
  const TempDir dir;
  CHECK(with_images(fmt::format(R"("path": "{}")", dir.path())).job().data.format ==
        DataFormat::images);
  CHECK(with_images(R"("path": "a.npz")").job().data.format == DataFormat::arrays);
  dir.write("x.npy", "");
  CHECK(with_images(fmt::format(R"("path": "{}")", dir.path())).job().data.format ==
        DataFormat::arrays);
  CHECK(verdict(with_images(R"("path": "a.npz", "crop": 4)").check(), "dstrain.data.crop") ==
        "no_effect: the data are arrays");
}

TEST_CASE("images: values that do not fit the model's images are errors") {
  const auto error = [](const std::string& data) {
    return with_images(R"("format": "images", )" + data).error();
  };
  CHECK_THAT(error(R"("mean": [0.1, 0.2])"),
             Catch::Contains("dstrain.data.mean: has 2 numbers, and the images of the model have 3 "
                             "channels: give a number for all channels, or one for each"));
  CHECK_THAT(error(R"("std": 0)"), Catch::Contains("dstrain.data.std: expected a number above 0"));
  CHECK_THAT(error(R"("std": [0.5, 0, 0.5])"), Catch::Contains("a list of numbers above 0"));
  CHECK_THAT(error(R"("mean": [])"), Catch::Contains("a list of numbers"));
  CHECK_THAT(error(R"("crop": 24)"),
             Catch::Contains("24 black pixels may be all that is left of images of 24 x 24"));
  CHECK_THAT(error(R"("size": 32)"),
             Catch::Contains("dstrain.data.size: 32 makes images of 32 x 32, and those of the "
                             "array model have 24 x 24"));
  Ask none = with_images(R"("format": "images")");
  none.request.need_data = true;
  CHECK_THAT(none.error(), Catch::Contains("dstrain.data.path: missing: name a folder of images"));
}

TEST_CASE("images: models that read no images refuse the format") {
  CHECK_THAT(ask(trains_with(R"("dstrain": {"data": {"format": "images"}})")).error(),
             Catch::Contains("\"images\" is of models whose inputs are arrays, and the GPT-lite "
                             "reads tokens"));
  static const ModelRegistry models({&array_family()});
  Ask other = ask(trains_with(R"("dstrain": {"data": {"format": "images"}})"));
  other.request.models = &models;
  CHECK_THAT(
      other.error(),
      Catch::Contains("dstrain.data.format: \"images\": images give an input of fractions of "
                      "(samples, 1 or 3 channels, height, width) and one of integers of "
                      "(samples), and no others; of a sample the array model reads x f32 (3, "
                      "4), y i32 ()"));
}
