# SPDX-License-Identifier: Apache-2.0
# Clusters in virtual time: docs/reference/simulate.md.
$(B)/harp-simulate: $(CLUSTER_OBJ) $(MODEL_OBJ) $(call obj,$(BASE) $(WIRE) $(PROTO))
	$(if $(TUNE),$(CC) $(TUNE) -o $@ $^ $(LDFLAGS) -lpthread -lm,$(call link,-pie,-lpthread -lm))
$(B)/tests/unit/test_cluster: $(filter-out %/main.o,$(CLUSTER_OBJ)) $(MODEL_OBJ)
