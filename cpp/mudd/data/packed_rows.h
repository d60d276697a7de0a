// Rows packed from whole documents, as TokenFormer's loader makes them.
//
// G workers share the records of an endless stream of epochs: record j of the stream, j = w + p G for place p of
// worker w, is document cipher(seed + j / N)(j mod N). A worker puts its documents first-fit into the rows of a
// batch; one that fits nowhere opens its next batch. Turn t is batch t / G of worker t mod G. With an end of the
// data the last batch of a worker has what is left, and the turns of a worker that has ended are passed over: the
// batches are the turns that remain, in order. Where a batch starts follows from those before it, so the starts
// are found once, in order, and kept in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mudd/data/index_cipher.h"
#include "mudd/data/row_plan.h"

namespace mudd {

struct PackOptions {
  int64_t seq_len = 0;
  int64_t batch_size = 0;
  int64_t workers = 1;
  int64_t epochs = 0;  // 0: without end
  uint32_t seed = 0;
  bool shuffle = true;
  std::string index;  // file of the starts; empty: none. Its name says which documents and options.
};

class PackedRows final : public RowPlan {
 public:
  PackedRows(DocumentTable documents, PackOptions options);

  // Rows of the batches that start in the first epoch.
  int64_t rows() const override;
  void pieces(int64_t sample, std::vector<TokenRange>& out) override;

  // Place of the first document of a batch in its worker's stream; Error if the data end before it.
  int64_t start_of(int64_t batch);

  // Where a stream resumes before a batch: the turn of the batch, and the places of the workers of that turn and
  // of the following ones. The place of a worker that has ended is the number of its documents.
  struct Cursor {
    int64_t turn = 0;
    std::vector<int64_t> places;
  };
  Cursor cursor(int64_t batch);

  // Batches before the data end, the last of each worker included; Error for data without end.
  int64_t batches();

 private:
  bool extend();                   // packs one more turn; false if all workers have ended
  int64_t turn_of(int64_t batch);  // Error if the data end before the batch
  int64_t documents_of(int64_t worker) const;
  void add_start(int64_t place);
  int64_t pack(int64_t worker, int64_t place);
  int64_t document_at(int64_t worker, int64_t place);
  int64_t first_fit(int64_t length);
  void take_free(size_t row, int64_t length);
  void load_index();
  void keep_index(size_t part);
  void save_index() const;

  DocumentTable documents_;
  PackOptions options_;
  std::vector<int64_t> starts_;             // of turns 0, 1, ...; -1: the worker has ended
  std::vector<int64_t> tail_;               // turns of batches after the first turn that is passed over
  int64_t before_tail_ = 0;                 // batches before it; turn and batch are equal there
  size_t saved_ = 0;                        // starts in the file
  int64_t packed_ = -1;                     // the turn that `rows_` contains
  std::vector<std::vector<int64_t>> rows_;  // documents of each row
  size_t leaves_ = 1;
  std::vector<int64_t> free_;  // a tree of the largest free length below each node; leaves from `leaves_` on
  int64_t cipher_epoch_ = -1;
  IndexCipher cipher_{1, 0};
};

}  // namespace mudd
