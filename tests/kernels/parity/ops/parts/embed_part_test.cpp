#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using TableValues = std::vector<double>;

// A part of the vocabulary: `tokens` tokens from `first` on, in a table that is followed by rows of padding.
struct TokenPart {
  int64_t first, tokens, table_rows;
  EmbedAttrs attrs(int64_t seq_len) const {
    return {.seq_len = seq_len, .tokens = tokens, .first_token = first};
  }
};
const TokenPart kTokenParts[] = {{0, 5, 5}, {5, 5, 8}, {10, 1, 5}, {11, 2, 3}};
constexpr int64_t kVocabulary = 13;

TEST_CASE("embeddings of parts of the tokens add up to that of all, and others are rows of zeros") {
  for (DType dtype : kRunTypes)
    for (const int64_t c : {1, 7, 16, 97, 1160}) {
      const int64_t r = 42;
      const auto ids = integer_values(r, 1, 0, kVocabulary);
      const auto token = rounded(normal_values(kVocabulary * c, 2), dtype);
      const Operand rows_of_ids{Shape{r}, DType::i32, ids}, out{Shape{r, c}, dtype};
      const auto whole =
          run_everywhere({OpKind::embed, EmbedAttrs{.seq_len = 7}},
                         {rows_of_ids, {Shape{kVocabulary, c}, dtype, token}}, {out})[0]
              .values();
      for (const TokenPart& p : kTokenParts) {
        INFO(name_of(dtype) << " columns " << c << " tokens " << p.first << " + " << p.tokens);
        TableValues part(token.begin() + p.first * c, token.begin() + (p.first + p.tokens) * c);
        part.resize(static_cast<size_t>(p.table_rows * c), std::nan(""));
        const auto x = run_everywhere({OpKind::embed, p.attrs(7)},
                                      {rows_of_ids, {Shape{p.table_rows, c}, dtype, part}}, {out});
        TableValues expected(whole.size());
        for (int64_t i = 0; i < r * c; ++i) {
          const auto id = static_cast<int64_t>(ids[static_cast<size_t>(i / c)]);
          if (p.first <= id && id < p.first + p.tokens)
            expected[static_cast<size_t>(i)] = whole[static_cast<size_t>(i)];
        }
        CHECK(x[0].values() == expected);
      }
    }
}

TEST_CASE("the gradient of a part of the tokens has its rows of that of all, and no others") {
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (const int64_t c : {1, 7, 97, 300})
      for (const bool accumulate : {false, true}) {
        const int64_t r = 42;
        const Operand ids{Shape{r}, DType::i32, integer_values(r, 1, 0, kVocabulary)};
        const Operand d_x{Shape{r, c}, dtype, normal_values(r * c, 2)};
        const auto before = rounded(normal_values((kVocabulary + 5) * c, 3), DType::f32);
        const auto rows_before = [&](int64_t first, int64_t count) {
          return TableValues(before.begin() + first * c, before.begin() + (first + count) * c);
        };
        Call call{.op = OpKind::embed_token_grad, .accumulate = accumulate};
        call.attrs = EmbedAttrs{.seq_len = 7};
        const auto whole =
            run_everywhere(call, {d_x, ids},
                           {{Shape{kVocabulary, c}, DType::f32, rows_before(0, kVocabulary)}})[0]
                .values();
        for (const TokenPart& p : kTokenParts) {
          if (!sample.takes()) continue;
          INFO(name_of(dtype) << " columns " << c << " tokens " << p.first << " + " << p.tokens);
          call.attrs = p.attrs(7);
          const auto part = run_everywhere(
              call, {d_x, ids},
              {{Shape{p.table_rows, c}, DType::f32, rows_before(p.first, p.table_rows)}});
          TableValues expected(whole.begin() + p.first * c,
                               whole.begin() + (p.first + p.tokens) * c);
          TableValues padding = rows_before(p.first + p.tokens, p.table_rows - p.tokens);
          if (!accumulate) std::ranges::fill(padding, 0.0);
          expected.insert(expected.end(), padding.begin(), padding.end());
          CHECK(part[0].values() == expected);
        }
      }
}

TEST_CASE("add_rows adds the row of the position, of documents too, in place or beside") {
  struct Sizes {
    int64_t samples, seq_len, columns;
  };
  for (DType dtype : kRunTypes)
    for (const Sizes& s : {Sizes{1, 1, 1}, {2, 3, 97}, {3, 64, 160}, {19, 2, 24}, {1, 5, 1161}})
      for (const bool with_documents : {false, true}) {
        INFO(name_of(dtype) << " columns " << s.columns << " documents " << with_documents);
        const int64_t r = s.samples * s.seq_len, c = s.columns;
        const auto x = rounded(normal_values(r * c, 1), dtype);
        const auto table = rounded(normal_values((s.seq_len + 1) * c, 2), dtype);
        const auto documents = documents_of_samples(s.samples, s.seq_len);
        std::vector<Operand> in{{Shape{r, c}, dtype, x}, {Shape{s.seq_len + 1, c}, dtype, table}};
        if (with_documents) in.push_back({Shape{r}, DType::i32, documents});
        const Call call{OpKind::add_rows, EmbedAttrs{.seq_len = s.seq_len}};
        const auto y = run_everywhere(call, in, {{Shape{r, c}, dtype}});
        const auto in_place = run_everywhere(call, in, {{Shape{r, c}, dtype, {}, 0}});
        TableValues expected(x.size());
        for (int64_t i = 0; i < r * c; ++i) {
          const double begin = with_documents ? documents[static_cast<size_t>(i / c)] : 0;
          const int64_t place = i / c % s.seq_len - static_cast<int64_t>(begin);
          expected[static_cast<size_t>(i)] =
              x[static_cast<size_t>(i)] + table[static_cast<size_t>(place * c + i % c)];
        }
        CHECK(y[0].values() == rounded(expected, dtype));
        require_same_bits("in place", in_place[0], y[0]);
      }
}

TEST_CASE("add_rows of samples of one row adds a bias to every row") {
  for (DType dtype : kRunTypes)
    for (const int64_t c : {1, 5, 16, 300}) {
      const int64_t r = 130;
      const auto x = rounded(normal_values(r * c, 1), dtype);
      const auto bias = rounded(normal_values(c, 2), dtype);
      TableValues expected(x.size());
      for (size_t i = 0; i < x.size(); ++i) expected[i] = x[i] + bias[i % static_cast<size_t>(c)];
      const auto y = run_everywhere({OpKind::add_rows, EmbedAttrs{.seq_len = 1}},
                                    {{Shape{r, c}, dtype, x}, {Shape{1, c}, dtype, bias}},
                                    {{Shape{r, c}, dtype}});
      CHECK(y[0].values() == rounded(expected, dtype));
    }
}

}  // namespace
}  // namespace dstrain::parity
