# SPDX-License-Identifier: Apache-2.0
# Clusters in virtual time: docs/reference/simulate.md. The models of links and flows are those of tests/networks.
CLUSTER_OBJ := $(call obj,$(sort $(wildcard cluster/*.c)))
$(CLUSTER_OBJ): DEFINES := -I$(T) -I.
MODEL_OBJ := $(addprefix $(B)/tests/networks/,agenda.o cubic.o flow.o host.o lane.o liar.o parameters.o probe.o traffic.o \
  trip.o wire.o)
$(B)/harp-simulate: $(CLUSTER_OBJ) $(MODEL_OBJ) $(call obj,$(BASE) $(WIRE) $(PROTO))
	$(if $(TUNE),$(CC) $(TUNE) -o $@ $^ $(LDFLAGS) -lpthread -lm,$(call link,-pie,-lpthread -lm))
$(B)/tests/unit/test_cluster: $(filter-out %/main.o,$(CLUSTER_OBJ)) $(MODEL_OBJ)
