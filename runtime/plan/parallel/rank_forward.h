// RankForward: a forward pass while it is divided among the ranks of a tensor and a sequence group (parallel.h): what
// this rank has of every value, and the instructions that bring it the rest.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// A rank of one of the two groups.
struct GroupRank {
  int rank = 0, ranks = 1;
  int32_t channel = 0;

  GroupRank(const Place& place, Axis axis)
      : rank(place.rank_in(axis)),
        ranks(place.ranks_in(axis)),
        channel(ranks > 1 ? channel_of(place, axis) : 0) {}
  bool alone() const { return ranks == 1; }
};

// What a rank has of a value.
enum class Spread : uint8_t {
  own,      // its rows of those of its sequence rank
  columns,  // all rows of its sequence rank, and some of their columns
};

class RankForward {
 protected:
  // Throws InternalError if the rows of a micro-batch do not divide evenly. `program` must outlive this object.
  RankForward(Program& program, const Place& place, int64_t row_multiple);

  int64_t sequence_rows() const { return rows_ / sequence_.ranks; }
  int64_t own_rows() const { return sequence_rows() / tensor_.ranks; }
  RowsPart sequence_part() const { return {sequence_.rank * sequence_rows(), rows_}; }
  RowsPart own_part() const { return {sequence_part().first + tensor_.rank * own_rows(), rows_}; }

  // Returns whether the value has been computed, and this rank has some of its columns.
  bool has_columns(BufferId id) const {
    const auto found = spread_.find(id);
    return found != spread_.end() && found->second == Spread::columns;
  }

  // Appends an instruction as it is.
  void keep(const Instruction& op) { list_.push_back(op); }
  // Appends an instruction that belongs to the layer of the whole model's instruction in hand. It is returned until the next
  // one is appended.
  Instruction& emit(OpKind kind, OpAttrs attrs, std::vector<BufferId> reads,
                    std::vector<BufferId> writes);
  void collective(OpKind kind, const GroupRank& member, BufferId from, BufferId to) {
    emit(kind, {}, {from}, {to}).channel = member.channel;
  }
  // Appends an operation that works on this rank's rows. Throws InternalError if it reads a value of which the rank has
  // columns.
  void on_rows(Instruction op);
  // Appends an operation that works on this rank's columns, of which its result has as many as its first operand.
  void on_columns(const Instruction& op);

  // Returns a new value (rows, columns) with the dtype of `like`.
  BufferId value(std::string name, int64_t rows, int64_t columns, BufferId like) {
    return program_.add_buffer(
        {.name = std::move(name), .shape = {rows, columns}, .dtype = program_.at(like).dtype});
  }
  const std::string& name_of(BufferId id) const { return program_.at(id).name; }

  // Makes a value of the whole model one of which this rank has its rows.
  void resize(BufferId id);
  // Returns what this rank has of the rows of a value: of an input of the model a view.
  BufferId own(BufferId id);
  // Returns a view of the rows of the sequence rank of an input; another buffer itself.
  BufferId sequence_rows_of(BufferId input) {
    return rows_of_input(input, sequence_part().first, sequence_rows());
  }
  // Returns all rows of its sequence rank of a value of which this rank has its rows.
  BufferId gathered(BufferId id);
  // Makes `result` this rank's rows of the sum of what the ranks of the tensor group have in `part`.
  void scatter_sum(BufferId part, BufferId result);
  // Returns some columns of `rows` rows of x, of which each rank of the group has all columns of some rows. `copies`: ranks
  // that get the same columns.
  BufferId exchanged(BufferId x, const GroupRank& group, int64_t rows, int64_t sections,
                     int64_t copies);

  // Gives this rank its part of a parameter. Throws InternalError if it has another part already.
  void divide(BufferId weight, TensorPart::By by, int64_t sections = 1, bool vocabulary = false);
  const Parameter& parameter(BufferId weight) const {
    return program_.parameter(program_.at(weight).parameter);
  }
  // Returns the first row that this rank has of a weight, and how many it has.
  std::pair<int64_t, int64_t> rows_of_part(BufferId weight) const;

  Program& program_;
  const GroupRank sequence_, tensor_;
  const int64_t row_multiple_;
  const int64_t rows_;                           // of a micro-batch
  std::vector<Instruction> list_;                // for this rank
  const Instruction* like_ = nullptr;            // the whole model's instruction in hand
  std::unordered_map<BufferId, Spread> spread_;  // of values that have been computed

 private:
  // Returns a view of rows of an input; `id` itself if it is none.
  BufferId rows_of_input(BufferId id, int64_t first, int64_t count);

  std::unordered_map<BufferId, BufferId> gathered_;                   // by this rank's rows
  std::map<std::tuple<BufferId, int64_t, int64_t>, BufferId> views_;  // by input, first row, rows
};

}  // namespace dstrain
