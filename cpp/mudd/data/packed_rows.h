// Rows packed from whole documents, as TokenFormer's loader makes them.
//
// G workers share the records of an endless stream of epochs: record j of the stream, j = w + p G for place p of
// worker w, is document cipher(seed + j / N)(j mod N). A worker puts its documents first-fit into the rows of a
// batch; one that fits nowhere opens its next batch. Batch b is number b / G of worker b mod G. Where a batch
// starts follows from those before it, so the starts are found once, in order, and kept in a file.
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
  void pieces(int64_t sample, std::vector<Piece>& out) override;

  // Place of the first document of a batch in its worker's stream; Error behind the end.
  int64_t start_of(int64_t batch);

  // Whole batches before the data end; Error for data without end.
  int64_t batches();

 private:
  bool extend();  // by one start; false at the end
  int64_t pack(int64_t worker, int64_t place);
  int64_t document_at(int64_t worker, int64_t place);
  int64_t first_fit(int64_t length);
  void take_free(size_t row, int64_t length);
  void load_index();
  void keep_index(size_t part);
  void save_index() const;

  DocumentTable documents_;
  PackOptions options_;
  std::vector<int64_t> starts_;  // of batches 0, 1, ...
  size_t saved_ = 0;             // of them in the file
  bool ended_ = false;
  int64_t packed_ = -1;                     // the batch that `rows_` holds
  std::vector<std::vector<int64_t>> rows_;  // documents of each row
  size_t leaves_ = 1;
  std::vector<int64_t> free_;  // a tree of the largest free length below each node; leaves from `leaves_` on
  int64_t cipher_epoch_ = -1;
  IndexCipher cipher_{1, 0};
};

}  // namespace mudd
