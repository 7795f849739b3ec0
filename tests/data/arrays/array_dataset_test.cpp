#include "runtime/data/arrays/array_dataset.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "runtime/core/error.h"
#include "runtime/data/open_dataset.h"
#include "runtime/data/sample_order.h"
#include "tests/data/arrays/array_files.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

// Sample i of the arrays has y = i and x = i + 0, 0.125, ... 0.625.
struct Rows {
  std::vector<double> x;
  std::vector<int64_t> y;
};

Rows rows(int64_t begin, int64_t end) {
  Rows rows;
  for (int64_t i = begin; i < end; ++i) {
    rows.y.push_back(i);
    for (int j = 0; j < 6; ++j) rows.x.push_back(static_cast<double>(i) + 0.125 * j);
  }
  return rows;
}

std::string file_of(const Rows& rows) {
  const auto n = static_cast<int64_t>(rows.y.size());
  return safetensors({{"x", "F64", {n, 3, 2}, bytes_of_values(rows.x)},
                      {"y", "I64", {n}, bytes_of_values(rows.y)}});
}

struct Batch {
  std::vector<float> x;
  std::vector<int32_t> y;
};

Batch read(const Dataset& data, Split split, int64_t first, int64_t count) {
  Batch batch{std::vector<float>(static_cast<size_t>(count * 6)),
              std::vector<int32_t>(static_cast<size_t>(count))};
  const InputTensor inputs[] = {
      {"x", InputRole::array, {batch.x.data(), {count, 3, 2}, DType::f32}},
      {"y", InputRole::array, {batch.y.data(), {count}, DType::i32}}};
  data.read(split, first, count, inputs);
  return batch;
}

std::vector<int32_t> numbers(const Dataset& data, Split split, int64_t first, int64_t count) {
  return read(data, split, first, count).y;
}

std::string data_fault(const Job& job) {
  try {
    open_dataset(job);
  } catch (const UserError& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("samples are rows of all arrays, in the order of the file or in that of text data") {
  const TempDir dir;
  Job job = array_job({dir.write("a.safetensors", file_of(rows(0, 10)))});
  const std::unique_ptr<Dataset> data = open_dataset(job);
  CHECK(data->samples(Split::train) == 10);
  CHECK(data->samples(Split::validation) == 0);
  const Batch batch = read(*data, Split::train, 8, 4);
  CHECK(batch.y == std::vector<int32_t>{8, 9, 0, 1});
  CHECK(std::vector<float>(batch.x.begin() + 6, batch.x.begin() + 12) ==
        std::vector<float>{9, 9.125f, 9.25f, 9.375f, 9.5f, 9.625f});
  job.data.random_order = true;
  job.seed = 7;
  const std::unique_ptr<Dataset> random = open_dataset(job);
  const SampleOrder order(10, true, 7);
  const std::vector<int32_t> seen = numbers(*random, Split::train, 0, 25);
  for (int64_t place = 0; place < 25; ++place)
    CHECK(seen[static_cast<size_t>(place)] == order.sample_at(place));
  // A part of a batch is the same as the whole of it.
  CHECK(numbers(*random, Split::train, 12, 5) ==
        std::vector<int32_t>(seen.begin() + 12, seen.begin() + 17));
}

TEST_CASE("arrays of several threads are those of one") {
  const TempDir dir;
  const std::unique_ptr<Dataset> data =
      open_dataset(array_job({dir.write("a.safetensors", file_of(rows(0, 9000)))}));
  const Batch batch = read(*data, Split::train, 0, 9000);
  for (size_t i = 0; i < 9000; i += 613) {
    CHECK(batch.y[i] == static_cast<int32_t>(i));
    CHECK(batch.x[6 * i + 5] == static_cast<float>(i) + 0.625f);
  }
}

TEST_CASE("the samples of several shards add up, and the last of them are for validation") {
  const TempDir dir;
  dir.write("b.safetensors", file_of(rows(3, 4)));
  dir.write("c.safetensors", file_of(rows(4, 10)));
  dir.write("a.safetensors", file_of(rows(0, 3)));
  Job job = array_job({dir / "*.safetensors"});
  job.data.val_fraction = 0.25;
  const std::unique_ptr<Dataset> data = open_dataset(job);
  CHECK(data->samples(Split::train) == 8);
  CHECK(data->samples(Split::validation) == 2);
  CHECK(numbers(*data, Split::train, 0, 8) == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(numbers(*data, Split::validation, 0, 2) == std::vector<int32_t>{8, 9});
  CHECK(data->files(Split::train).paths.size() == 3);
  CHECK(data->files(Split::validation).paths.empty());
  CHECK(data->validation_fingerprint() == 0);
  CHECK_THAT(data->summary(), Contains("3 files (a.safetensors, b.safetensors, c.safetensors): "
                                       "arrays x (3, 2) f64, y () i64; 8 training samples, 2 for "
                                       "validation"));

  job.data.paths = {dir / "c.safetensors"};
  job.data.val_path = dir / "a.safetensors";
  job.data.val_fraction = 0;
  const std::unique_ptr<Dataset> own = open_dataset(job);
  CHECK(own->samples(Split::train) == 6);
  CHECK(numbers(*own, Split::validation, 0, 3) == std::vector<int32_t>{0, 1, 2});
  CHECK(own->files(Split::validation).paths == std::vector<std::string>{dir / "a.safetensors"});
  CHECK(own->validation_fingerprint() != 0);
  CHECK(own->fingerprint() != data->fingerprint());
  CHECK(own->fingerprint() == open_dataset(job)->fingerprint());
  own->check_unchanged();
}

TEST_CASE("arrays are found by name, else by number, and what no input reads is told") {
  const TempDir dir;
  const Rows two = rows(0, 2);
  const std::string x = npy("<f8", "(2, 3, 2)", bytes_of_values(two.x)),
                    y = npy("<i8", "(2,)", bytes_of_values(two.y)),
                    text = npy("<U1", "(2,)", std::string(8, 'a'));
  const auto summary = [](const std::string& path) {
    const std::unique_ptr<Dataset> data = open_dataset(array_job({path}));
    CHECK(numbers(*data, Split::train, 0, 2) == std::vector<int32_t>{0, 1});
    return data->summary();
  };
  CHECK_THAT(
      summary(dir.write("names.npz",
                        ZipFile().add("ids.npy", text).add("y.npy", y).add("x.npy", x).bytes())),
      Contains("none for validation; no input of the model reads ids"));
  CHECK_THAT(
      summary(dir.write("numbers.npz", ZipFile().add("arr_1.npy", y).add("arr_0.npy", x).bytes())),
      Contains("arrays arr_0 (x) (3, 2) f64, arr_1 (y) () i64"));
  CHECK_THAT(summary(dir.write(
                 "more.npz", ZipFile().add("2.npy", text).add("1.npy", y).add("0.npy", x).bytes())),
             Contains("no input of the model reads 2"));
  const ModelFamily one = arrays_family({{"y", InputRole::array, DType::i32, {}, {}, {}}});
  CHECK(open_dataset(array_job({dir.write("alone.npy", y)}, one))->samples(Split::train) == 2);
}

TEST_CASE("arrays that the model cannot read are errors that name file, array and shapes") {
  const TempDir dir;
  const Rows two = rows(0, 2);
  const TestTensor x{"x", "F64", {2, 3, 2}, bytes_of_values(two.x)},
      y{"y", "I64", {2}, bytes_of_values(two.y)};
  const auto fault = [&](const std::vector<TestTensor>& tensors) {
    const std::string path = dir.write("a.safetensors", safetensors(tensors));
    const std::string text = data_fault(array_job({path}));
    if (text != "none") CHECK_THAT(text, Contains("the data " + path));
    return text;
  };
  const auto with = [](TestTensor tensor, auto change) {
    change(tensor);
    return tensor;
  };
  CHECK(fault({x, y}) == "none");
  CHECK_THAT(fault({x, with(y, [](TestTensor& t) { t.name = "label"; })}),
             Contains("lack the array y, and have label, x: the model reads x f32 (3, 2), y i32 ();"
                      " give the arrays these names, or the numbers 0, 1, ... in this order"));
  CHECK_THAT(fault({with(x, [](TestTensor& t) { t.name = "0"; })}),
             Contains("lack the arrays x, y, and have 0"));
  CHECK_THAT(
      fault({with(x,
                  [](TestTensor& t) {
                    t.shape = {2, 2, 3};
                  }),
             y}),
      Contains("the array x has the shape (2, 2, 3), and the model's input x wants (samples, "
               "3, 2): axis 0 is the samples"));
  CHECK_THAT(fault({x, with(y,
                            [](TestTensor& t) {
                              t.shape = {2, 1};
                            })}),
             Contains("the array y has the shape (2, 1), and the model's input y wants (samples)"));
  CHECK_THAT(fault({x, with(y,
                            [](TestTensor& t) {
                              t.shape = {};
                              t.data.resize(8);
                            })}),
             Contains("the array y has the shape ()"));
  CHECK_THAT(fault({x, with(y,
                            [](TestTensor& t) {
                              t.shape = {1};
                              t.data.resize(8);
                            })}),
             Contains("the array x has 2 samples, and y has 1: axis 0 of every array"));
  CHECK_THAT(fault({{"x", "F32", {0, 3, 2}, ""}, {"y", "I32", {0}, ""}}),
             Contains("have no sample"));
  CHECK_THAT(fault({x, {"y", "F8_E5M2", {2}, "ab"}}),
             Contains("the array y has elements of type F8_E5M2, which models do not read: save "
                      "integers, bool, float16, float32 or float64"));
}

TEST_CASE("arrays in Fortran order or of other types are refused with what to do") {
  const TempDir dir;
  const std::string x = npy("<f8", "(2, 3, 2)", bytes_of_values(rows(0, 2).x)),
                    y = npy("<i8", "(2,)", bytes_of_values(rows(0, 2).y));
  const auto fault = [&](const std::string& x_bytes, const std::string& y_bytes) {
    return data_fault(array_job(
        {dir.write("a.npz", ZipFile().add("x.npy", x_bytes).add("y.npy", y_bytes).bytes())}));
  };
  CHECK(fault(x, y) == "none");
  CHECK_THAT(
      fault(npy("<f8", "(2, 3, 2)", bytes_of_values(rows(0, 2).x), true), y),
      Contains("the array x is in Fortran order") && Contains("save np.ascontiguousarray(x)"));
  CHECK_THAT(fault(x, npy(">i8", "(2,)", std::string(16, '\0'))),
             Contains("of type >i8, which models do not read: it is big-endian: save "
                      "a.astype(a.dtype.newbyteorder('='))"));
  CHECK_THAT(fault(x, npy("|V2", "(2,)", "abcd")), Contains("bfloat16"));
  CHECK_THAT(fault(x, npy("|O", "(2,)", "pickle")), Contains("of type |O"));
  CHECK_THAT(data_fault(array_job({dir.write("x.npy", x), dir.write("y.npy", y)})),
             Contains("x.npy lack the arrays x, y, and have 0") &&
                 Contains("name the folder that the .npy files of all of them lie in"));
}

TEST_CASE("values that an input cannot hold end the run before it begins") {
  const TempDir dir;
  const auto fault = [&](std::vector<int64_t> y, double last = 1, int64_t eval_samples = 160) {
    Rows all = rows(0, std::ssize(y));
    all.y = std::move(y);
    all.x.back() = last;
    Job job = array_job({dir.write("a.safetensors", file_of(all))});
    job.data.val_fraction = 0.5;
    job.eval_samples = eval_samples;
    return data_fault(job);
  };
  CHECK(fault({1, -2147483648, 2147483647, -1}) == "none");
  CHECK_THAT(fault({1, 3000000000, 2, 4000000000}),
             Contains("sample 1 of the array y has 3000000000 as element 0, and the model reads it "
                      "as i32, expected whole numbers from -2147483648 to 2147483647"));
  CHECK_THAT(fault({1, 2, 3, 4}, 1e300),
             Contains("sample 3 of the array x has 1e+300 as element 5, and the model reads it as "
                      "f32"));
  // Samples that no validation takes are not looked at.
  CHECK_THAT(fault({1, 2, 3, 4000000000}, 1, 2), Contains("sample 3 of the array y"));
  CHECK(fault({1, 2, 3, 4000000000}, 1, 1) == "none");
}

TEST_CASE("every sample has all of an array that the data name as a whole") {
  const TempDir dir;
  const ModelFamily family =
      arrays_family({{"y", InputRole::array, DType::i32, {}, {}, {}, {4}},
                     {"edges", InputRole::array, DType::i32, {}, {}, {2}, {3, 2}}});
  const auto file = [&](std::string_view name, int64_t first, int64_t samples) {
    std::vector<int64_t> y;
    for (int64_t i = 0; i < samples; ++i) y.push_back(first + i);
    const std::vector<int64_t> edges{first, 1, 2, 3, 4, 5};
    return dir.write(name, safetensors({{"y", "I64", {samples}, bytes_of_values(y)},
                                        {"edges", "I64", {3, 2}, bytes_of_values(edges)}}));
  };
  Job job = array_job({file("a.safetensors", 10, 4), file("b.safetensors", 20, 4)}, family);
  const auto read_both = [&](int64_t y_elements) {
    const std::unique_ptr<Dataset> data = open_dataset(job);
    const int64_t count = data->samples(Split::train);
    std::vector<int32_t> y(static_cast<size_t>(count * y_elements)),
        edges(static_cast<size_t>(count * 6));
    const InputTensor inputs[] = {
        {"y", InputRole::array, {y.data(), {count, y_elements}, DType::i32}},
        {"edges", InputRole::array, {edges.data(), {count, 3, 2}, DType::i32}}};
    data->read(Split::train, 0, count, inputs);
    for (int64_t i = 0; i < count; ++i) CHECK(edges[static_cast<size_t>(6 * i + 5)] == 5);
    std::vector<int32_t> firsts;
    for (int64_t i = 0; i < count; ++i) firsts.push_back(edges[static_cast<size_t>(6 * i)]);
    return std::pair(y, firsts);
  };
  job.model.set_whole({"edges"});
  CHECK(read_both(1) == std::pair(std::vector<int32_t>{10, 11, 12, 13, 20, 21, 22, 23},
                                  std::vector<int32_t>{10, 10, 10, 10, 20, 20, 20, 20}));
  job.model.set_whole({"y", "edges"});
  CHECK(read_both(4) == std::pair(std::vector<int32_t>{10, 11, 12, 13, 20, 21, 22, 23},
                                  std::vector<int32_t>{10, 20}));
  job.model.set_whole({});
  CHECK_THAT(data_fault(job), Contains("the array y has 4 samples, and edges has 3"));
  job.model.set_whole({"y"});
  job.data.paths = {file("c.safetensors", 10, 5)};
  CHECK_THAT(data_fault(job),
             Contains("the array y has the shape (5), and the model's input y, which "
                      "dstrain.data.whole names, wants (4): it has no axis of "
                      "samples"));
  job.model.set_whole({"edges"});
  job.data.paths = {file("d.safetensors", 3000000000, 0)};
  CHECK_THAT(data_fault(job), Contains("have no sample"));
  job.data.paths = {file("e.safetensors", 3000000000, 1)};
  CHECK_THAT(data_fault(job), Contains("sample 0 of the array y has 3000000000"));
  job.model.set_whole({"y", "edges"});
  job.data.paths = {file("f.safetensors", 3000000000, 4)};
  CHECK_THAT(data_fault(job), Contains(": the array y has 3000000000 as element 0"));
}

TEST_CASE("a part of the data without a sample is an error") {
  const TempDir dir;
  Job job = array_job({dir.write("a.safetensors", file_of(rows(0, 3)))});
  job.data.val_fraction = 0.1;
  job.eval_interval = 5;
  CHECK_THAT(data_fault(job),
             Contains("have 3 samples, of which the validation part has none "
                      "(val_fraction 0.1): give more data, a larger val_fraction, or "
                      "eval_interval 0"));
  job.eval_interval = 0;
  CHECK_THAT(open_dataset(job)->summary(), Contains("3 training samples, none for validation"));
  job.data.paths = {};
  CHECK_THAT(data_fault(job), Contains("there is no data to train on: give a file of arrays"));
  job.data.paths = {dir / "*.npz"};
  CHECK_THAT(data_fault(job), Contains("no file matches the pattern"));
}

TEST_CASE("a file that becomes shorter under a run ends it") {
  const TempDir dir;
  const std::string path = dir.write("a.safetensors", file_of(rows(0, 10000)));
  const std::unique_ptr<Dataset> data = open_dataset(array_job({path}));
  std::filesystem::resize_file(path, 4096);
  CHECK_THROWS_WITH(numbers(*data, Split::train, 9000, 4), Contains("cut short"));
  CHECK_THROWS_WITH(data->check_unchanged(), Contains("cut short"));
}

}  // namespace dstrain
