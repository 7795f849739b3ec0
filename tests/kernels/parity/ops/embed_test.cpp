#include <algorithm>
#include <random>

#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

struct EmbedSizes {
  int64_t samples, seq_len, columns, vocabulary;
};
const EmbedSizes kEmbedSizes[] = {{1, 1, 1, 1},     {2, 3, 97, 5},  {1, 7, 16, 65},
                                  {3, 64, 160, 11}, {19, 2, 24, 7}, {1, 3, 1160, 5}};

TEST_CASE("embed adds the token's row and the position's row") {
  for (DType dtype : kRunTypes)
    for (const EmbedSizes& s : kEmbedSizes)
      for (bool with_position : {false, true}) {
        const int64_t r = s.samples * s.seq_len, c = s.columns;
        const auto ids = integer_values(r, 1, 0, s.vocabulary);
        const auto token = rounded(normal_values(s.vocabulary * c, 2), dtype);
        const auto position = rounded(normal_values(s.seq_len * c, 3), dtype);
        Call call{OpKind::embed};
        call.attrs = EmbedAttrs{.seq_len = s.seq_len};
        const auto x = run_everywhere(
            call,
            {{Shape{r}, DType::i32, ids},
             {Shape{s.vocabulary, c}, dtype, token},
             with_position ? Operand{Shape{s.seq_len, c}, dtype, position} : absent()},
            {{Shape{r, c}, dtype}});
        std::vector<double> expected(static_cast<size_t>(r * c));
        for (int64_t i = 0; i < r * c; ++i) {
          const auto id = static_cast<int64_t>(ids[static_cast<size_t>(i / c)]);
          expected[static_cast<size_t>(i)] =
              token[static_cast<size_t>(id * c + i % c)] +
              (with_position ? position[static_cast<size_t>(i / c % s.seq_len * c + i % c)] : 0);
        }
        CHECK(x[0].values() == rounded(expected, dtype));
      }
}

TEST_CASE("embed_token_grad adds each row to its token's row, and clears or keeps what was there") {
  Sample sample = sample_if_emulated(1);
  for (DType dtype : kRunTypes)
    for (const EmbedSizes& s : kEmbedSizes)
      for (bool accumulate : {false, true}) {
        if (!sample.takes()) continue;
        const int64_t r = s.samples * s.seq_len, c = s.columns;
        const auto ids = integer_values(r, 1, 0, s.vocabulary);
        const auto d_x = rounded(normal_values(r * c, 2), dtype);
        const auto before = rounded(normal_values(s.vocabulary * c, 3), DType::f32);
        Call call{OpKind::embed_token_grad};
        call.accumulate = accumulate;
        const auto d_token =
            run_everywhere(call, {{Shape{r, c}, dtype, d_x}, {Shape{r}, DType::i32, ids}},
                           {{Shape{s.vocabulary, c}, DType::f32, before}});
        std::vector<double> expected = accumulate ? before : std::vector<double>(before.size());
        for (int64_t i = 0; i < r * c; ++i)
          expected[static_cast<size_t>(static_cast<int64_t>(ids[static_cast<size_t>(i / c)]) * c +
                                       i % c)] += d_x[static_cast<size_t>(i)];
        require_close("d_token", d_token[0].values(), expected, {1e-5, 1e-5});
      }
}

// Against a sum in the order of the rows, in f32: the bits of it are the promise.
TEST_CASE("embed_token_grad adds the rows of tokens in order, frequent ones too") {
  const int64_t r = 700;
  Sample sample = sample_if_emulated(1);
  for (DType dtype : kRunTypes)
    for (const int64_t c : {13, 768})
      for (bool accumulate : {false, true}) {
        if (!sample.takes()) continue;
        std::vector<double> ids;  // runs of one, 63, 64, 65 and of several hundred rows
        for (const auto& [id, count] : {std::pair{4, 1}, {2, 63}, {7, 64}, {1, 65}, {5, 507}})
          ids.insert(ids.end(), static_cast<size_t>(count), id);
        REQUIRE(ids.size() == static_cast<size_t>(r));
        std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
        const auto d_x = rounded(normal_values(r * c, 2), dtype);
        const auto before = rounded(normal_values(9 * c, 3), DType::f32);
        Call call{OpKind::embed_token_grad};
        call.accumulate = accumulate;
        const auto d_token =
            run_everywhere(call, {{Shape{r, c}, dtype, d_x}, {Shape{r}, DType::i32, ids}},
                           {{Shape{9, c}, DType::f32, before}});
        std::vector<double> expected = accumulate ? before : std::vector<double>(before.size());
        for (int64_t i = 0; i < r * c; ++i) {
          double& sum = expected[static_cast<size_t>(
              static_cast<int64_t>(ids[static_cast<size_t>(i / c)]) * c + i % c)];
          sum = static_cast<float>(sum) + static_cast<float>(d_x[static_cast<size_t>(i)]);
        }
        CHECK(d_token[0].values() == expected);
      }
}

TEST_CASE("embed_position_grad sums over the samples") {
  for (DType dtype : kRunTypes)
    for (const EmbedSizes& s : kEmbedSizes)
      for (bool accumulate : {false, true}) {
        const int64_t r = s.samples * s.seq_len, c = s.columns;
        const auto d_x = rounded(normal_values(r * c, 2), dtype);
        const auto before = rounded(normal_values(s.seq_len * c, 3), DType::f32);
        Call call{OpKind::embed_position_grad};
        call.accumulate = accumulate;
        call.attrs = EmbedAttrs{.seq_len = s.seq_len};
        const auto d_position = run_everywhere(call, {{Shape{r, c}, dtype, d_x}},
                                               {{Shape{s.seq_len, c}, DType::f32, before}});
        std::vector<double> expected = accumulate ? before : std::vector<double>(before.size());
        for (int64_t i = 0; i < r * c; ++i)
          expected[static_cast<size_t>(i % (s.seq_len * c))] += d_x[static_cast<size_t>(i)];
        require_close("d_position", d_position[0].values(), expected, {1e-6, 1e-6});
      }
}

TEST_CASE("embed_position_grad makes the rows of positions that no sample has zeros") {
  for (DType dtype : kRunTypes)
    for (const EmbedSizes& s : kEmbedSizes)
      for (bool accumulate : {false, true}) {
        const int64_t r = s.samples * s.seq_len, c = s.columns, positions = s.seq_len + 3;
        const auto d_x = rounded(normal_values(r * c, 2), dtype);
        const auto before = rounded(normal_values(positions * c, 3), DType::f32);
        Call call{OpKind::embed_position_grad};
        call.accumulate = accumulate;
        call.attrs = EmbedAttrs{.seq_len = s.seq_len};
        const auto d_position = run_everywhere(call, {{Shape{r, c}, dtype, d_x}},
                                               {{Shape{positions, c}, DType::f32, before}});
        std::vector<double> expected = accumulate ? before : std::vector<double>(before.size());
        for (int64_t i = 0; i < r * c; ++i)
          expected[static_cast<size_t>(i % (s.seq_len * c))] += d_x[static_cast<size_t>(i)];
        require_close("d_position", d_position[0].values(), expected, {1e-6, 1e-6});
      }
}

TEST_CASE("embed of documents adds the row of the position in the row's document") {
  for (DType dtype : kRunTypes)
    for (const EmbedSizes& s : kEmbedSizes) {
      const int64_t r = s.samples * s.seq_len, c = s.columns;
      const auto ids = integer_values(r, 1, 0, s.vocabulary);
      const auto documents = documents_of_samples(s.samples, s.seq_len);
      const auto token = rounded(normal_values(s.vocabulary * c, 2), dtype);
      const auto position = rounded(normal_values(s.seq_len * c, 3), dtype);
      Call call{OpKind::embed};
      call.attrs = EmbedAttrs{.seq_len = s.seq_len};
      const auto x = run_everywhere(call,
                                    {{Shape{r}, DType::i32, ids},
                                     {Shape{s.vocabulary, c}, dtype, token},
                                     {Shape{s.seq_len, c}, dtype, position},
                                     {Shape{r}, DType::i32, documents}},
                                    {{Shape{r, c}, dtype}});
      std::vector<double> expected(static_cast<size_t>(r * c));
      for (int64_t i = 0; i < r * c; ++i) {
        const auto row = static_cast<size_t>(i / c);
        const auto id = static_cast<int64_t>(ids[row]);
        const int64_t place = i / c % s.seq_len - static_cast<int64_t>(documents[row]);
        expected[static_cast<size_t>(i)] = token[static_cast<size_t>(id * c + i % c)] +
                                           position[static_cast<size_t>(place * c + i % c)];
      }
      CHECK(x[0].values() == rounded(expected, dtype));
    }
}

// Against a sum in the order of the rows, in f32: the bits of it are the promise.
TEST_CASE("embed_position_grad of documents adds each row to that of its position, in order") {
  Sample sample = sample_if_emulated(1);
  for (DType dtype : kRunTypes)
    for (const EmbedSizes& s : kEmbedSizes)
      for (bool accumulate : {false, true}) {
        if (!sample.takes()) continue;
        const int64_t r = s.samples * s.seq_len, c = s.columns, positions = s.seq_len + 3;
        const auto documents = documents_of_samples(s.samples, s.seq_len);
        const auto d_x = rounded(normal_values(r * c, 2), dtype);
        const auto before = rounded(normal_values(positions * c, 3), DType::f32);
        Call call{OpKind::embed_position_grad};
        call.accumulate = accumulate;
        call.attrs = EmbedAttrs{.seq_len = s.seq_len};
        const auto d_position =
            run_everywhere(call, {{Shape{r, c}, dtype, d_x}, {Shape{r}, DType::i32, documents}},
                           {{Shape{positions, c}, DType::f32, before}});
        std::vector<double> expected = accumulate ? before : std::vector<double>(before.size());
        for (int64_t i = 0; i < r * c; ++i) {
          const auto begin = static_cast<int64_t>(documents[static_cast<size_t>(i / c)]);
          const int64_t place = i / c % s.seq_len - begin;
          double& sum = expected[static_cast<size_t>(place * c + i % c)];
          sum = static_cast<float>(sum) + static_cast<float>(d_x[static_cast<size_t>(i)]);
        }
        CHECK(d_position[0].values() == expected);
      }
}

TEST_CASE(
    "the token gradient of a vocabulary of 50257 is cleared everywhere and hit where it must") {
  const int64_t v = 50257, c = 3;
  const auto d = run_at_offset(
      {OpKind::embed_token_grad, {}, 2},
      {{Shape{2, c}, DType::f32, {1, 2, 3, 4, 5, 6}}, {Shape{2}, DType::i32, {50256, 50256}}},
      {{Shape{v, c}, DType::f32}}, 1);
  const auto values = d[0].values();
  CHECK(std::count(values.begin(), values.end(), 0.0) == (v - 1) * c);
  CHECK(std::vector<double>(values.end() - c, values.end()) == std::vector<double>{5, 7, 9});
}

}  // namespace
}  // namespace dstrain::parity
