# SPDX-License-Identifier: BSD-3-Clause
#
# The samples as tests: small runs that check themselves.  They exit non-zero
# when a message, the accuracy or a weight is not what it should be.

baton_run_test(sample.hello.alone TARGET hello LABELS sample)
baton_mpi_test(sample.hello.2 RANKS 2 TARGET hello LABELS sample)
baton_mpi_test(sample.hello.3 RANKS 3 TARGET hello LABELS sample)

set(few --messages 4000 --outstanding 32)
baton_run_test(sample.host_poll.local.1 TARGET host_poll LABELS sample
	ARGS --ranks 1 ${few})
baton_run_test(sample.host_poll.local.3 TARGET host_poll LABELS sample
	ARGS --ranks 3 ${few} PROCESSORS 2)
baton_mpi_test(sample.host_poll.mpi.2 RANKS 2 TARGET host_poll LABELS sample
	ARGS ${few})
baton_mpi_test(sample.host_poll.mpi.2.long RANKS 2 TARGET host_poll
	LABELS sample ARGS --messages 1000 --bytes 65536)

# Without MPI, by RANK and WORLD_SIZE.  Were the ranks not to find each other's names, each would be
# a world of one.
function(sample_near_test name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET;RANKS" "ARGS;ENV")
	add_test(NAME ${name} COMMAND sh -c
		[[ranks=$1; shift
		export WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1
		export BATON_PORT=$((20000 + $$ % 10000)) BATON_SECRET=sample_without_mpi_$$
		rank=1 pids=
		while [ $rank -lt $ranks ]; do
			RANK=$rank "$@" & pids="$pids $!"
			rank=$((rank + 1))
		done
		RANK=0 "$@"; status=$?
		for pid in $pids; do wait $pid || status=$?; done
		exit $status]] sh ${arg_RANKS} $<TARGET_FILE:${arg_TARGET}> ${arg_ARGS})
	baton_test_properties(${name} TIMEOUT 120 PROCESSORS ${arg_RANKS}
		LABELS sample PROGRAMS ${arg_TARGET} ARGS ${arg_ARGS}
		ENV ${arg_ENV})
	set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION
		"baton: warning;local transport;rank 0 received 1 ")
endfunction()
sample_near_test(sample.hello.near TARGET hello RANKS 2)
sample_near_test(sample.host_poll.near.3 TARGET host_poll RANKS 3
	ARGS ${few})
sample_near_test(sample.producer_consumer.near.3 TARGET producer_consumer
	RANKS 3 ARGS --items 500)

# The same programs on the CUDA device, over the simulator of the driver.
set(cuda BATON_DEVICE=cuda BATON_CUDA_LIBRARY=$<TARGET_FILE:cudasim>
	CUDASIM_ABORT=1)
baton_run_test(sample.hello.cuda.alone TARGET hello LABELS sample ENV ${cuda})
baton_mpi_test(sample.hello.cuda.2 RANKS 2 TARGET hello LABELS sample
	ENV ${cuda})
baton_run_test(sample.host_poll.cuda.local.3 TARGET host_poll LABELS sample
	ARGS --ranks 3 --messages 1000 --outstanding 16 ENV ${cuda}
	PROCESSORS 2)
baton_mpi_test(sample.host_poll.cuda.mpi.2 RANKS 2 TARGET host_poll
	LABELS sample ARGS --messages 1000 --outstanding 16 ENV ${cuda})
baton_mpi_test(sample.host_poll.cuda.mpi.2.long RANKS 2 TARGET host_poll
	LABELS sample ARGS --messages 100 --outstanding 8 --bytes 1048576
	ENV ${cuda})
# Without the device it would pass as well.
set_tests_properties(sample.host_poll.cuda.local.3 PROPERTIES
	FAIL_REGULAR_EXPRESSION "host device")
if(BATON_HAVE_MPI)
	set_tests_properties(sample.host_poll.cuda.mpi.2
		sample.host_poll.cuda.mpi.2.long PROPERTIES
		FAIL_REGULAR_EXPRESSION "host device")
endif()

# Over NCCL, between two simulated GPUs.
set(nccl BATON_TRANSPORT=nccl BATON_CUDA_LIBRARY=$<TARGET_FILE:cudasim>
	CUDASIM_ABORT=1 CUDASIM_DEVICES=2 CUDA_DEVICE_MAX_CONNECTIONS=32
	BATON_NCCL_LIBRARY=$<TARGET_FILE:ncclsim> NCCLSIM_ABORT=1)
baton_mpi_test(sample.host_poll.nccl RANKS 2 TARGET host_poll LABELS sample
	ARGS --messages 200 --outstanding 8 ENV ${nccl})
baton_run_test(sample.host_poll.nccl_alone TARGET host_poll LABELS sample
	ENV ${nccl})
set_tests_properties(sample.host_poll.nccl_alone PROPERTIES
	PASS_REGULAR_EXPRESSION "over NCCL the ranks are processes")
if(BATON_HAVE_MPI)
	set_tests_properties(sample.host_poll.nccl PROPERTIES
		FAIL_REGULAR_EXPRESSION "mpi transport;baton: warning")
endif()

# It has kernels, so here it can only say what is missing: also on a machine with a GPU,
# which is hidden from it.
if(TARGET sample_cuda_overlap)
	add_test(NAME sample.cuda_overlap.no_gpu COMMAND sh -c
		[[said=$("$1" 2>&1); status=$?; echo "$said"
		case $said in
		*"needs a GPU.  cudaGetDeviceCount: cudaError"*"baton_comm_create: BATON_ERR_UNSUPPORTED: "*) [ $status = 1 ] ;;
		*) false ;;
		esac]] sh ${cuda_overlap})
	baton_test_properties(sample.cuda_overlap.no_gpu TIMEOUT 60
		PROGRAMS sample_cuda_overlap
		ENV CUDA_VISIBLE_DEVICES= BATON_CUDA_LIBRARY=)
endif()

# One slot: every item waits for its credit.  More items than slots, fewer, and
# each way of putting.
foreach(ranks 2 4 8)
	baton_mpi_test(sample.producer_consumer.${ranks} RANKS ${ranks}
		TARGET producer_consumer LABELS sample ARGS --items 500)
endforeach()
baton_mpi_test(sample.producer_consumer.one_slot RANKS 3
	TARGET producer_consumer LABELS sample ARGS --items 300 --slots 1)
baton_mpi_test(sample.producer_consumer.few RANKS 2
	TARGET producer_consumer LABELS sample ARGS --items 5 --bytes 8)
foreach(path direct vmwrite message)
	baton_mpi_test(sample.producer_consumer.${path} RANKS 3
		TARGET producer_consumer LABELS sample
		ARGS --items 300 --bytes 40000 ENV BATON_WINDOW_PATH=${path})
endforeach()
foreach(ranks 2 4)
	baton_mpi_test(sample.producer_consumer.cuda.${ranks} RANKS ${ranks}
		TARGET producer_consumer LABELS sample ARGS --items 200
		ENV ${cuda})
	# Whichever way the puts go, the rings are in memory of the device.
	if(BATON_HAVE_MPI)
		set_tests_properties(sample.producer_consumer.cuda.${ranks}
			PROPERTIES FAIL_REGULAR_EXPRESSION
			"host device;memory of the host")
	endif()
endforeach()
# The devices do not reach each other's memory.
baton_mpi_test(sample.producer_consumer.cuda.apart RANKS 2
	TARGET producer_consumer LABELS sample ARGS --items 100
	ENV ${cuda} CUDASIM_PEERS=0)
if(BATON_HAVE_MPI)
	set_tests_properties(sample.producer_consumer.cuda.apart PROPERTIES
		PASS_REGULAR_EXPRESSION "memory of the device.*1 +message")
endif()
# Over NCCL signals and puts go beside it.
baton_mpi_test(sample.producer_consumer.nccl RANKS 2 TARGET producer_consumer
	LABELS sample ARGS --items 100 ENV ${nccl})
if(BATON_HAVE_MPI)
	set_tests_properties(sample.producer_consumer.nccl PROPERTIES
		FAIL_REGULAR_EXPRESSION
		"host device;mpi transport;memory of the host;baton: warning")
endif()
baton_run_test(sample.producer_consumer.alone TARGET producer_consumer
	LABELS sample)
set_tests_properties(sample.producer_consumer.alone PROPERTIES
	PASS_REGULAR_EXPRESSION "started as 1 ranks, must be 2 to 8")

# The halves of a model.
set(models ${onnx_cache}/models)
if(BATON_SANITIZE)
	# ONNX Runtime is not built for it: ThreadSanitizer finds races in it, and with
	# AddressSanitizer each start takes 20 s.
elseif(TARGET onnx_pipeline AND EXISTS ${models}/whole.onnx)
	baton_run_test(sample.onnx_pipeline.local TARGET onnx_pipeline
		LABELS sample ARGS --batches 24 PROCESSORS 2)
	sample_near_test(sample.onnx_pipeline.near TARGET onnx_pipeline RANKS 2
		ARGS --batches 24)
	baton_mpi_test(sample.onnx_pipeline.mpi RANKS 2 TARGET onnx_pipeline
		LABELS sample ARGS --batches 24)
	# More in flight than there are batches, and then one at a time.
	baton_mpi_test(sample.onnx_pipeline.few RANKS 2 TARGET onnx_pipeline
		LABELS sample ARGS --batches 3 --in-flight 8 --rows 1 --length 1)
	baton_mpi_test(sample.onnx_pipeline.in_turn RANKS 2 TARGET onnx_pipeline
		LABELS sample ARGS --batches 5 --in-flight 1)
	# Memory of the host, on a communicator of the device.
	baton_mpi_test(sample.onnx_pipeline.cuda RANKS 2 TARGET onnx_pipeline
		LABELS sample ARGS --batches 8 ENV ${cuda})
	if(BATON_HAVE_MPI)
		set_tests_properties(sample.onnx_pipeline.cuda PROPERTIES
			FAIL_REGULAR_EXPRESSION "host device")
	endif()
	# A first half that gives what the second does not take, and an unsplit model with
	# another weight.
	add_test(NAME sample.onnx_pipeline.spoil COMMAND sh -c
		[[rm -rf no_halves other_weight && cp -r "$1" no_halves &&
		cp -r "$1" other_weight && cp "$1/whole.onnx" no_halves/first.onnx &&
		printf 11111111 | dd of=other_weight/whole.onnx bs=1 seek=200000 conv=notrunc]]
		sh ${models})
	baton_test_properties(sample.onnx_pipeline.spoil TIMEOUT 60)
	baton_run_test(sample.onnx_pipeline.no_halves TARGET onnx_pipeline
		LABELS sample ARGS --models no_halves PROCESSORS 2)
	add_test(NAME sample.onnx_pipeline.other_weight COMMAND sh -c
		[[said=$("$1" --models other_weight); status=$?; echo "$said"
		case $said in
		*"WRONG: "*" batches are not what the unsplit model makes of them"*) [ $status = 1 ] ;;
		*) false ;;
		esac]] sh $<TARGET_FILE:onnx_pipeline>)
	baton_test_properties(sample.onnx_pipeline.other_weight TIMEOUT 60
		PROCESSORS 2 PROGRAMS onnx_pipeline)
	set_tests_properties(sample.onnx_pipeline.no_halves PROPERTIES
		PASS_REGULAR_EXPRESSION
		"BATON_ERR_MISMATCH.*4 tensors were declared, 2 came")
	set_tests_properties(sample.onnx_pipeline.spoil PROPERTIES
		FIXTURES_SETUP spoilt_models)
	set_tests_properties(sample.onnx_pipeline.no_halves
		sample.onnx_pipeline.other_weight PROPERTIES
		FIXTURES_REQUIRED spoilt_models)
	baton_run_test(sample.onnx_pipeline.no_models TARGET onnx_pipeline
		LABELS sample ARGS --models /nowhere)
	set_tests_properties(sample.onnx_pipeline.no_models PROPERTIES
		PASS_REGULAR_EXPRESSION "onnx failed.*File doesn't exist")
else()
	baton_skipped_test(sample.onnx_pipeline ${onnx_cache}/no-onnx
		"no ONNX Runtime: samples/onnx_pipeline/fetch has not been run")
endif()

if(NOT TARGET pipeline)
	return()
endif()
# As small as still learns enough; one thread for each rank's products.
set(small --batch 128 --micro-batches 8 --hidden 128 --epochs 30
	--progress plain)
set(one_thread OPENBLAS_NUM_THREADS=1)
baton_run_test(sample.pipeline.alone TARGET pipeline LABELS sample
	ARGS ${small} ENV ${one_thread})
foreach(ranks 2 4)
	baton_mpi_test(sample.pipeline.${ranks} RANKS ${ranks} TARGET pipeline
		LABELS sample ARGS ${small} ENV ${one_thread})
endforeach()
set(tiny --batch 128 --micro-batches 2 --hidden 64 --layers 3 --epochs 12
	--progress plain)
baton_mpi_test(sample.pipeline.cuda.2 RANKS 2 TARGET pipeline LABELS sample
	ARGS ${tiny} ENV ${one_thread} ${cuda})
if(BATON_HAVE_MPI)
	set_tests_properties(sample.pipeline.cuda.2 PROPERTIES
		FAIL_REGULAR_EXPRESSION "host device;baton: warning")
endif()
# The products by cuBLAS, in whose place a part of the simulator is; and without it.
baton_mpi_test(sample.pipeline.cublas.2 RANKS 2 TARGET pipeline LABELS sample
	ARGS ${tiny} --cublas $<TARGET_FILE:cudasim-cublas>
	ENV ${one_thread} ${cuda})
baton_mpi_test(sample.pipeline.no_cublas RANKS 2 TARGET pipeline LABELS sample
	ARGS ${tiny} --cublas /nowhere/libcublas.so ENV ${one_thread} ${cuda}
	EXPECT "rank 1: no cuBLAS: /nowhere/libcublas.so: cannot open")
if(BATON_HAVE_MPI)
	set_tests_properties(sample.pipeline.cublas.2 PROPERTIES
		FAIL_REGULAR_EXPRESSION "OpenBLAS;baton: warning")
	set_tests_properties(sample.pipeline.no_cublas PROPERTIES
		FAIL_REGULAR_EXPRESSION "epoch 1")
endif()
baton_mpi_test(sample.pipeline.nccl RANKS 2 TARGET pipeline LABELS sample
	ARGS ${tiny} --cublas none ENV ${one_thread} ${nccl})
if(BATON_HAVE_MPI)
	set_tests_properties(sample.pipeline.nccl PROPERTIES
		FAIL_REGULAR_EXPRESSION "mpi transport;baton: warning")
endif()
sample_near_test(sample.pipeline.near.2 TARGET pipeline RANKS 2
	ARGS ${tiny} ENV ${one_thread})
# What overlap gains is told where the machine was quiet; any is quiet enough for 0, and none
# for 1000.
baton_mpi_test(sample.pipeline.quiet RANKS 2 TARGET pipeline LABELS sample
	ARGS ${tiny} --quiet 0 ENV ${one_thread} EXPECT
	"as fast as without .median of 12 quiet epochs of 12(.|\n)*passed")
baton_mpi_test(sample.pipeline.busy RANKS 2 TARGET pipeline LABELS sample
	ARGS ${tiny} --quiet 1000 ENV ${one_thread} EXPECT
	"TOO BUSY TO TELL(.|\n)*0 of 12 epochs(.|\n)*results are right")
if(BATON_HAVE_MPI)
	set_tests_properties(sample.pipeline.busy PROPERTIES
		FAIL_REGULAR_EXPRESSION "as fast as without|passed")
endif()
# Fewer micro-batches than stages, and a stage for each layer.
baton_mpi_test(sample.pipeline.short RANKS 4 TARGET pipeline LABELS sample
	ARGS ${small} --layers 4 --micro-batches 2 ENV ${one_thread})

# With the picture of a step, over a pretended link so fast that its delays are short.
# Nothing here depends on how long anything takes.
if(BATON_HAVE_MPI)
	set(timeline ${CMAKE_CURRENT_BINARY_DIR}/timeline.svg)
	baton_mpi_test(sample.pipeline.3 RANKS 3 TARGET pipeline
		LABELS sample ARGS ${small} --timeline ${timeline}
		--link-name "a < b & c" --pretend-link 100000
		ENV ${one_thread})
	set_tests_properties(sample.pipeline.3 PROPERTIES
		FIXTURES_SETUP timeline)
	find_package(Python3 COMPONENTS Interpreter)
	if(Python3_FOUND)
		add_test(NAME sample.pipeline.timeline_is_xml COMMAND
			Python3::Interpreter -c
			"import sys, xml.dom.minidom as x; x.parse(sys.argv[1])"
			${timeline})
		baton_test_properties(sample.pipeline.timeline_is_xml TIMEOUT 60
			PROGRAMS pipeline)
		set_tests_properties(sample.pipeline.timeline_is_xml PROPERTIES
			FIXTURES_REQUIRED timeline)
	endif()
	baton_mpi_test(sample.pipeline.bad_timeline RANKS 2 TARGET pipeline
		LABELS sample ARGS --epochs 1 --hidden 128 --no-verify
		--timeline /nowhere/at/all.svg ENV ${one_thread}
		EXPECT "cannot write /nowhere/at/all.svg")
endif()

# What is wrong with the input is said.
baton_run_test(sample.pipeline.bad_batch TARGET pipeline LABELS sample
	ARGS --batch 100)
set_tests_properties(sample.pipeline.bad_batch PROPERTIES
	PASS_REGULAR_EXPRESSION "--batch is 100, must be a multiple of")
baton_run_test(sample.pipeline.bad_data TARGET pipeline LABELS sample
	ARGS --data ${CMAKE_CURRENT_SOURCE_DIR}/hello.c)
set_tests_properties(sample.pipeline.bad_data PROPERTIES
	PASS_REGULAR_EXPRESSION "hello.c: line 1 does not begin with a digit")
