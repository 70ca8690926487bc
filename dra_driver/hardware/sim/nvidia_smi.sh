#!/bin/sh
# nvidia-smi of a simulated GPU machine where no static program could be built: the same answers for -L, the table and
# --query-gpu=uuid, with nothing but a POSIX shell. See nvidia_smi.c for the format it reads.
root=${NVIDIA_SIM_ROOT:-}
case ${0##*/} in nvidia-smi) ;; *) echo "${0##*/}: stands for the program of that name and does nothing" >&2; exit 0 ;; esac
library=
for d in /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/lib /lib64 /lib; do
    for f in "$root$d"/libnvidia-ml.so.1 "$root$d"/libnvidia-ml.so.*; do
        [ -z "$library" ] && [ -e "$f" ] && library=$f
    done
done
if [ -z "$library" ]; then
    echo "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed and present in your system."
    echo "Please also try adding directory that contains libnvidia-ml.so to your system PATH."
    exit 12
fi
tab=$(printf '\t') number=0 shown= state=0 driver= cuda= open=0
while IFS="$tab" read -r kind a b c d e name rest; do
    case $kind in
    "NVIDIA-SIM-TABLE 1") state=1 ;;
    end) [ $state = 1 ] && break ;;
    driver) [ $state = 1 ] && driver=$a cuda=$b open=$c ;;
    gpu)
        visible=0
        if [ $state = 1 ] && [ -e "$root/dev/nvidia$a" ]; then
            visible=1
            case ${1:-} in
            -L | --list-gpus) row="GPU $number: $name (UUID: $c)" ;;
            --query-gpu=uuid) row=$c ;;
            *) row=$(printf '| %3d  %-43s %-17s %9s MiB        |' "$number" "$name" "$b" "$d") ;;
            esac
            shown="$shown$row
"
            number=$((number + 1))
        fi ;;
    mig)
        if [ $state = 1 ] && [ "$visible" = 1 ] && { [ "${1:-}" = -L ] || [ "${1:-}" = --list-gpus ]; }; then
            caps=$root/dev/nvidia-caps/nvidia-cap
            if [ -e "${caps}1" ] || { [ -e "$caps$d" ] && [ -e "$caps$e" ]; }; then
                shown="$shown$(printf '  MIG %-11s Device %2d: (UUID: %s)' "$name" "$b" "$c")
"
            fi
        fi ;;
    esac
done <"$library" 2>/dev/null
if [ "$open" != 1 ] || [ ! -e "$root/dev/nvidiactl" ]; then
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."
    echo
    exit 9
fi
if [ $number = 0 ]; then
    echo "No devices were found"
    exit 6
fi
line="+-----------------------------------------------------------------------------------------+"
case ${1:-} in
"") printf '%s\n| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n%s\n' "$line" "$driver" "$driver" "$cuda" "$line"
    printf '| GPU  Name                                        Bus-Id            Memory-Total         |\n%s\n' "$line"
    printf '%s%s\n' "$shown" "$line" ;;
*) printf '%s' "$shown" ;;
esac
