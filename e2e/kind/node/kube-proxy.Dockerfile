# kube-proxy in nftables mode: the program, nft and the libraries of nft.
ARG ROOT
FROM ${ROOT} AS files
LABEL dra-driver.stage=kube-proxy
COPY kube-proxy /out/usr/local/bin/kube-proxy
RUN cp --parents /usr/sbin/nft /out \
 && ldd /usr/sbin/nft | grep -o '/[^ ]*' | xargs -I '{}' cp --dereference --parents '{}' /out

FROM scratch
COPY --from=files /out /
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin
